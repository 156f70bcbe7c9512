"""The ledger: what was promised to whom, and whether each event keeps the promises.

An owner is live from the moment its delivery is in its hands until its own clock says that the
lease is over, until it begins to settle, or until it dies. Every time here is the true one.

| promise          | broken when                                                                  |
|------------------|------------------------------------------------------------------------------|
| one owner        | a delivery while another owner of the message is live                        |
| acked for good   | a delivery after an ack was confirmed                                        |
| fencing          | an ack, extension or return that began after a later delivery, and was taken |
| a lease is kept  | a live owner is refused for good                                             |
| attempts grow    | a delivery whose attempt was seen before (a return uncounted excepted)       |
| strict order     | two messages in flight, or one before another that was sent earlier is done  |
| nothing is lost  | a confirmed message is not had after the faults have ended                   |
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pump.message import Delivery
from pump.outcome import Abandon, Ack, Action

from .machines import Process
from .trace import Trace


class Broken(Exception):
    """A promise was broken."""


@attrs.define(eq=False)
class Claim:
    """A delivery in somebody's hands."""

    process: Process
    delivery: Delivery
    since_s: float
    until_s: float
    is_over: bool = False
    """Its owner no longer believes in it."""
    action: Action | None = None
    is_in_doubt: bool = False
    """Whether an action was begun and its end is not known."""
    doubts: int = 0
    """How many its process had had when it began to settle."""

    def is_live(self, now_s: float) -> bool:
        return not self.is_over and self.process.is_alive and now_s < self.until_s


@attrs.define(eq=False)
class Story:
    """What has become of a message."""

    number: int
    began_s: float
    confirmed_s: float | None = None
    acked_s: float | None = None
    copies: int = 0
    """In the dead-letter queue."""
    claims: list[Claim] = attrs.field(factory=list)

    @property
    def may_be_done(self) -> bool:
        """Whether it was acked or dead-lettered, or somebody died or despaired while doing so."""
        if self.acked_s is not None or self.copies:
            return True
        return any(claim.is_in_doubt and isinstance(claim.action, Ack) for claim in self.claims)


class Ledger:
    """Hears of every event of a run, and raises `Broken` at the first that should not be."""

    def __init__(self, trace: Trace, *, is_strict: bool, max_receive_count: int | None) -> None:
        self.stories: dict[int, Story] = {}
        self.now_s = 0.0
        self._trace = trace
        self._is_strict = is_strict
        self._max_receive_count = max_receive_count

    # Sending.

    def sending(self, count: int, now_s: float) -> list[int]:
        """The numbers of messages that are about to be sent together."""
        numbers = list(range(len(self.stories), len(self.stories) + count))
        for number in numbers:
            self.stories[number] = Story(number, now_s)
        return numbers

    def sent(self, numbers: list[int], process: Process, now_s: float) -> None:
        """The sender was told that they are safe."""
        self._trace.note(process.name, "SENT", numbers)
        for number in numbers:
            self.stories[number].confirmed_s = now_s

    def dead_lettered(self, number: int, process: Process) -> None:
        """A copy is in the dead-letter queue."""
        self._trace.note(process.name, "DEAD-LETTERED", number)
        self.stories[number].copies += 1

    # Receiving.

    def claimed(self, process: Process, delivery: Delivery, now_s: float) -> Claim:
        """A process has a message in hand."""
        number = int(delivery.message.body)
        until_s = process.machine.true_s(delivery.lease_expires_at_s)
        claim = Claim(process, delivery, now_s, until_s)
        story = self.stories[number]
        self._trace.note(
            process.name, "HAS", f"{number} attempt {delivery.attempt} for {until_s - now_s:.3f} s"
        )
        story.claims.append(claim)
        if not claim.is_live(now_s):
            # It was under way until its lease was over, and its owner knows: that owns nothing.
            return claim
        if story.acked_s is not None:
            raise Broken(f"message {number} was delivered after its ack was confirmed")
        if self._max_receive_count and delivery.attempt > self._max_receive_count:
            raise Broken(f"message {number} was delivered more often than the queue allows")
        self._check_owners(story, claim, now_s)
        self._check_attempt(story, claim)
        if self._is_strict:
            self._check_order(story, now_s)
        return claim

    def _check_owners(self, story: Story, claim: Claim, now_s: float) -> None:
        for other in story.claims:
            if other is not claim and other.is_live(now_s) and claim.is_live(now_s):
                names = f"{other.process.name} and {claim.process.name}"
                rest_s = other.until_s - now_s
                raise Broken(
                    f"message {story.number} has two live owners, {names}, for {rest_s:.3f} s"
                )

    def _check_attempt(self, story: Story, claim: Claim) -> None:
        attempt = claim.delivery.attempt
        for other in story.claims[:-1]:
            is_uncounted = isinstance(other.action, Abandon)
            if attempt + is_uncounted <= other.delivery.attempt:
                raise Broken(f"message {story.number} was delivered as attempt {attempt} again")

    def _check_order(self, story: Story, now_s: float) -> None:
        for other in self.stories.values():
            if other is story:
                continue
            if any(claim.is_live(now_s) for claim in other.claims):
                raise Broken(f"messages {story.number} and {other.number} are both in flight")
            if _is_before(other, story) and not other.may_be_done:
                raise Broken(f"message {story.number} was delivered before {other.number} was done")
            if _is_before(story, other) and other.claims:
                raise Broken(f"message {story.number} was delivered after {other.number}")

    # Extending and settling.

    def extended(self, claim: Claim, *, began_s: float, until_s: float, now_s: float) -> None:
        """The store took an extension that was asked for at `began_s`."""
        self._trace.note(claim.process.name, "RENEWED", f"{_number(claim)} for {until_s - now_s}")
        story = self._story(claim)
        self._check_fence(story, claim, began_s, "extension")
        claim.until_s = until_s
        self._check_owners(story, claim, now_s)

    def settling(self, claim: Claim, action: Action) -> None:
        """The owner lets go."""
        self._trace.note(claim.process.name, "SETTLES", f"{_number(claim)} {action}")
        claim.is_over, claim.is_in_doubt, claim.action = True, True, action
        claim.doubts = claim.process.doubts

    def settled(self, claim: Claim, *, began_s: float, now_s: float) -> None:
        """The store took what the owner asked for at `began_s`."""
        self._trace.note(claim.process.name, "SETTLED", f"{_number(claim)} {claim.action}")
        story = self._story(claim)
        claim.is_in_doubt = False
        self._check_fence(story, claim, began_s, "settlement")
        if not isinstance(claim.action, Ack):
            return
        for later in story.claims[story.claims.index(claim) + 1 :]:
            # An ack in doubt that finds the message acked by its next owner may call it its own.
            if not isinstance(later.action, Ack) and later.since_s < later.until_s:
                raise Broken(f"message {story.number} was acked by an owner that had lost it")
        if story.acked_s is None:
            story.acked_s = now_s

    def refused(self, claim: Claim, *, now_s: float, what: str) -> None:
        """The store refused for good."""
        self._trace.note(claim.process.name, "REFUSED", f"{_number(claim)} {what}")
        had_doubts = claim.is_in_doubt and claim.process.doubts > claim.doubts
        # A return in doubt may have made way for the next owner, whom it then finds.
        is_excused = had_doubts and not isinstance(claim.action, Ack)
        if now_s < claim.until_s and claim.process.is_alive and not is_excused:
            raise Broken(f"message {_number(claim)}: a live owner's {what} was refused")
        # Whoever does not know whether an end is its own, and is too late, is refused.
        claim.is_in_doubt = had_doubts
        claim.is_over = True

    def _check_fence(self, story: Story, claim: Claim, began_s: float, what: str) -> None:
        for later in story.claims[story.claims.index(claim) + 1 :]:
            if later.since_s < began_s and later.delivery.attempt >= claim.delivery.attempt:
                raise Broken(
                    f"message {story.number}: the {what} of {claim.process.name} was taken after"
                    f" {later.process.name} had got the message"
                )

    def _story(self, claim: Claim) -> Story:
        return self.stories[_number(claim)]

    # The end.

    def missing(self) -> Iterator[Story]:
        """Messages that were promised and not had yet."""
        for story in self.stories.values():
            if story.confirmed_s is not None and not story.may_be_done:
                yield story


def _number(claim: Claim) -> int:
    return int(claim.delivery.message.body)


def _is_before(one: Story, other: Story) -> bool:
    """Whether it was safe before the other was begun to be sent."""
    return one.confirmed_s is not None and one.confirmed_s < other.began_s
