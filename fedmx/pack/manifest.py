"""The manifest of a pack: what its members are, and what a run needs that no pack can hold."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmx.pack.errors import PackError

FORMAT = 1
MOST_BYTES = 16 << 20
"""Of a manifest: a million clients' sizes take about five of them."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
WholeNumber = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Member(_Part):
    """A member: its length in bytes, and its SHA-256 (hex)."""

    bytes: WholeNumber
    sha256: Sha256


class Data(_Part):
    """The data of the run, by which they are known where they are at hand.

    Attributes:
        name: what messages call the data set.
        sha256: of the samples and labels as they were loaded; see `fedmx.assembly.data`.
        partition_sha256: of each client's rows; None: the samples come client by client.
        sizes: each client's number of training samples; or one number for all.
        test: the number of test samples.
    """

    name: str
    sha256: Sha256
    partition_sha256: Sha256 | None
    sizes: tuple[WholeNumber, ...] | WholeNumber
    test: WholeNumber


class Manifest(_Part):
    """What is in a pack.

    Attributes:
        format: of the pack.
        run: the name of the run folder.
        members: all other members, by name.
        data: the data of the run.
        weights: the names of the model's parameters, in the order of the flat vector.
        buffers: the names of its non-trainable tensors, in the order of theirs.
        packages: the installed package of each module that the experiment names and that is not in
            the pack, with its version, as ``name version``.
    """

    format: int = FORMAT
    run: str
    members: dict[str, Member]
    data: Data
    weights: tuple[str, ...]
    buffers: tuple[str, ...]
    packages: dict[str, str]

    def to_bytes(self) -> bytes:
        """Return the manifest as its member holds it."""
        return (json.dumps(self.model_dump(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def of_bytes(cls, content: bytes) -> Manifest:
        """Return the manifest that a member holds.

        Raises:
            PackError: it is none, or a newer fedmx wrote it.
        """
        if len(content) > MOST_BYTES:
            raise PackError(f"its manifest has {len(content)} bytes; at most {MOST_BYTES} are read")
        try:
            found = _Format.model_validate_json(content).format
            if found > FORMAT:
                raise PackError(
                    f"the pack has format {found}, this fedmx reads up to {FORMAT}; "
                    "use the version that made it, or a newer one"
                )
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:60] for part in first["loc"])
            text = " ".join(f"{where}: {first['msg']}".split())
            raise PackError(f"not a pack: its manifest is wrong ({text})") from None


class _Format(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    format: int
