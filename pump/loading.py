"""Loading: from `module:app` to an App, or to a line that says why not."""

from __future__ import annotations

import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType

from .app import App
from .exit_codes import Failure
from .gateway_url import shadowing_files

_DEFAULT_ATTRIBUTE = "app"


def load_app(target: str) -> App:
    """Import the app that `module:app` names, the working folder first.

    Raises `Failure`; when the user's own code failed, with the user's traceback, not ours.
    """
    module_name, _, attribute = target.partition(":")
    attribute = attribute or _DEFAULT_ATTRIBUTE
    _check_spelling(target, module_name)
    put_working_folder_first()
    module = _import(module_name)
    return _find(module, module_name, attribute)


def put_working_folder_first() -> None:
    """Have `import` look where the user stands."""
    folder = str(Path.cwd())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def shadowing_warnings() -> list[str]:
    """A line for each file of the user's that stands in front of a package of ours."""
    return [
        f"{path} stands in front of Pumphouse's own package {name!r}, so `import {name}` finds "
        f"yours; rename it, to {_other_name(name)} for instance"
        for name, path in shadowing_files().items()
    ]


def _other_name(package: str) -> str:
    return {"pump": "app.py", "handlers": "order_handlers.py"}.get(package, f"my_{package}.py")


def _check_spelling(target: str, module_name: str) -> None:
    if module_name.endswith(".py") or "/" in module_name:
        path = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise Failure(
            f"{target!r} is a file, not a module", remedy=f"write {path}:{_DEFAULT_ATTRIBUTE}"
        )
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise Failure(f"{target!r} names no app", remedy="write module:app, such as orders:app")


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if (name == missing or name.startswith(f"{missing}.")) and not _users_part(error):
            raise Failure(
                f"there is no module {missing!r} in {Path.cwd()} or on Python's path",
                remedy=_nearby(name),
            ) from None
        raise _import_failure(name, error) from None
    except (Exception, SystemExit) as error:  # broad: a user's module may raise anything
        raise _import_failure(name, error) from None


def _import_failure(name: str, error: BaseException) -> Failure:
    lines = traceback.format_exception(type(error), error, _users_part(error))
    return Failure(
        f"importing {name!r} failed: {traceback.format_exception_only(error)[-1].strip()}",
        remedy=_shadowing_remedy(error),
        details="".join(lines),
    )


def _shadowing_remedy(error: BaseException) -> str:
    """What to do when the module that lacks something is the user's own in front of ours."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    path = shadowing_files().get(package)
    if path is None:
        return ""
    return (
        f"your {path} stands in front of Pumphouse's own package {package!r}; "
        f"rename it, to {_other_name(package)} for instance"
    )


def _users_part(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is neither ours nor the import system's."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_machinery(file: str) -> bool:
    return file == __file__ or "importlib" in file


def _nearby(name: str) -> str:
    stems = sorted(path.stem for path in Path.cwd().glob("*.py"))
    close = get_close_matches(name, stems, n=1) or [
        stem for stem in ("app", "main") if stem in stems
    ]
    if close:
        return f"did you mean {close[0]}:{_DEFAULT_ATTRIBUTE}?"
    return "go to the folder that holds it, or install its package"


def _find(module: ModuleType, name: str, attribute: str) -> App:
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Failure(
                f"{_where(module, name)} has no {attribute!r}", remedy=_apps_in(module, name)
            ) from None
    if not isinstance(found, App):
        kind = type(found).__name__
        raise Failure(
            f"{name}:{attribute} is not an App but {_article(kind)} {kind}",
            remedy=_apps_in(module, name),
        )
    return found


def _where(module: ModuleType, name: str) -> str:
    file = getattr(module, "__file__", None)
    return f"module {name!r} ({file})" if file else f"module {name!r}"


def _apps_in(module: ModuleType, name: str) -> str:
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    if apps:
        return f"use {' or '.join(f'{name}:{app}' for app in apps)}"
    return 'make one there: app = App("local://")'


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"
