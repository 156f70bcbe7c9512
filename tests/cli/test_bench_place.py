"""Where a run has its queues."""

from pathlib import Path

import pytest

from gateways.local import LocalGateway
from gateways.memory.gateway import MemoryGateway
from pump import App
from pump.cli.bench_run import bench_place
from pump.exit_codes import Failure


def folders_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


@pytest.mark.parametrize("url", ["local://", "local://data/queues", "local://?max_bytes=1000000"])
async def test_queues_in_a_folder_have_one_of_their_own_which_goes(folder: Path, url: str) -> None:
    with bench_place(App(url)) as place:
        assert not place.keeps_queues
        await place.gateway.open()
        [made] = folders_in(folder)
        assert made.startswith(".pumphouse-bench-")
        await place.gateway.aclose()

    assert folders_in(folder) == []


async def test_the_folder_is_beside_the_apps_own_on_the_same_disk(folder: Path) -> None:
    (folder / "data").mkdir()

    with bench_place(App(f"local://{folder}/data/queues")):
        [made] = folders_in(folder / "data")

    assert made.startswith(".pumphouse-bench-")


@pytest.mark.parametrize(("gateway", "keeps"), [(LocalGateway, True), (MemoryGateway, False)])
async def test_a_gateway_that_is_an_object_is_used_as_it_is(
    folder: Path, gateway: type[LocalGateway | MemoryGateway], keeps: bool
) -> None:
    own = gateway()

    with bench_place(App(own)) as place:
        assert (place.gateway, place.keeps_queues) == (own, keeps)


def test_when_no_folder_can_be_made_then_it_says_where_and_what_to_do() -> None:
    # There is no folder to be made in /proc, whoever asks; nor in /, where there is no /proc.
    app = App("local:///proc/queues")

    with pytest.raises(Failure, match="cannot make a folder") as raised, bench_place(app):
        pass

    assert "--gateway local://FOLDER" in str(raised.value)
