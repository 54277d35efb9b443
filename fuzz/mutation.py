"""Where the inputs come from: good ones, bent in ways that peers and attackers bend them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

__all__ = ["Mutator", "chunks"]

#: The seeds stay; of what was found on the way, so many are kept.
MAX_FOUND = 400
MAX_SIZE = 400
#: How many inputs are made longer than that, so that every cap on a part of an input is passed.
STRETCHED = 0.005
#: Where there are members: how many inputs are objects of random ones, and how many are valid but for one too many.
RANDOM_OBJECTS = 0.35
ONE_TOO_MANY = 0.2


class Mutator:
    """Makes inputs from a corpus, which grows by the inputs that led to something new."""

    def __init__(
        self,
        seeds: Sequence[bytes],
        tokens: Sequence[bytes],
        rng: Random,
        members: Sequence[bytes] = (),
        shapes: Sequence[Sequence[Sequence[bytes]]] = (),
    ) -> None:
        self.seeds = list(seeds)
        self.tokens = tokens
        self.members = members
        self.shapes = shapes
        self.rng = rng
        self.found: list[bytes] = []
        self._ways: list[Callable[[bytes], bytes]] = [
            self._flip,
            self._insert_byte,
            self._delete,
            self._repeat,
            self._cut,
            self._insert_token,
            self._insert_token,
            self._replace_by_token,
            self._splice,
            self._swap_members,
            self._repeat_member,
            self._drop_member,
        ]

    def next(self) -> bytes:
        """One input: something from the corpus, changed between no and four times, or an object of given members."""
        rng = self.rng
        data = self._make()
        return self._stretch(data) if rng.random() < STRETCHED else data

    def _make(self) -> bytes:
        rng = self.rng
        kind = rng.random() if self.members else 1.0
        if kind < ONE_TOO_MANY:
            return self._compose_one_too_many()
        if kind < ONE_TOO_MANY + RANDOM_OBJECTS:
            data = self._compose()
            return self._deepen(data) if rng.random() < 0.002 else data
        data = self._pick()
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            data = rng.choice(self._ways)(data)
        return data[:MAX_SIZE]

    def learn(self, data: bytes) -> None:
        """Keeps an input that led to something new, in the place of an older one if there are many."""
        if len(self.found) < MAX_FOUND:
            self.found.append(data)
        else:
            self.found[self.rng.randrange(MAX_FOUND)] = data

    def _pick(self) -> bytes:
        rng = self.rng
        return rng.choice(self.found) if self.found and rng.random() < 0.4 else rng.choice(self.seeds)

    def _compose(self) -> bytes:
        rng = self.rng
        space = rng.choice((b"", b"", b"", b" ", b"\n\t"))
        return _object([rng.choice(self.members) for _ in range(rng.choice((2, 3, 3, 4, 4, 4, 5, 6)))], space)

    def _compose_one_too_many(self) -> bytes:
        """A message of a valid shape, with one member more: another of its own, or any."""
        rng = self.rng
        shape = rng.choice(self.shapes)
        members = [rng.choice(values) for values in shape]
        if rng.random() < 0.3:
            rng.shuffle(members)
        extra = rng.choice(rng.choice(shape) if rng.random() < 0.5 else self.members)
        members.insert(rng.randint(0, len(members)), extra)
        return _object(members, rng.choice((b"", b"", b"", b"", b"", b" ")))

    def _stretch(self, data: bytes) -> bytes:
        a, b = self._span(data)
        return data[:a] + (data[a:b] or b"x") * self.rng.choice((1, 3, 1000, 1025, 3000)) + data[b:]

    def _deepen(self, data: bytes) -> bytes:
        a, b = self._span(data)
        opening, closing = self.rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
        depth = self.rng.choice((10, 900, 50_000))
        deep = opening * depth + b"1" + closing * depth
        return self.rng.choice(
            (data[:a] + deep + data[b:], data.replace(b"{}", deep), data.replace(b":1", b":" + deep))
        )

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self.rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self.rng.randrange(8))]) + data[at + 1 :]

    def _insert_byte(self, data: bytes) -> bytes:
        at = self.rng.randint(0, len(data))
        return data[:at] + self.rng.randbytes(1) + data[at:]

    def _delete(self, data: bytes) -> bytes:
        a, b = self._span(data)
        return data[:a] + data[b:]

    def _repeat(self, data: bytes) -> bytes:
        a, b = self._span(data)
        return data[:b] + data[a:b] * self.rng.choice((1, 1, 2, 5)) + data[b:]

    def _cut(self, data: bytes) -> bytes:
        return data[: self.rng.randint(0, len(data))]

    def _insert_token(self, data: bytes) -> bytes:
        at = self.rng.randint(0, len(data))
        return data[:at] + self.rng.choice(self.tokens) + data[at:]

    def _replace_by_token(self, data: bytes) -> bytes:
        a, b = self._span(data)
        return data[:a] + self.rng.choice(self.tokens) + data[b:]

    def _splice(self, data: bytes) -> bytes:
        other = self._pick()
        return data[: self.rng.randint(0, len(data))] + other[self.rng.randint(0, len(other)) :]

    # The commas of a compact envelope are where its members meet; where they are not, this is as good as any change.
    def _swap_members(self, data: bytes) -> bytes:
        members = data.strip(b"{}").split(b",")
        self.rng.shuffle(members)
        return b"{" + b",".join(members) + b"}"

    def _repeat_member(self, data: bytes) -> bytes:
        members = data[1:-1].split(b",")
        members.insert(self.rng.randint(0, len(members)), self.rng.choice(members))
        return data[:1] + b",".join(members) + data[-1:]

    def _drop_member(self, data: bytes) -> bytes:
        members = data[1:-1].split(b",")
        del members[self.rng.randrange(len(members))]
        return data[:1] + b",".join(members) + data[-1:]

    def _span(self, data: bytes) -> tuple[int, int]:
        a = self.rng.randint(0, len(data))
        return a, min(len(data), a + self.rng.choice((1, 1, 2, 4, 8, 20)))


def _object(members: Sequence[bytes], space: bytes) -> bytes:
    return space + b"{" + (b"," + space).join(members) + space + b"}" + space


def chunks(data: bytes, rng: Random) -> list[bytes]:
    """Cut the bytes anywhere; now and then into single bytes."""
    if rng.random() < 0.2:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
