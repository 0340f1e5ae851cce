"""Files of data sets: their folders, and downloads that give the right file or none."""

import gzip
import hashlib
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from layers.compute.data.datasets.images import IdxSet, Mnist
from layers.compute.data.files import Files, Remote, default_cache, fetch
from layers.compute.errors import DataError, DownloadError

CONTENT = np.random.default_rng(5).bytes(700_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """A server's files, its faults, and the requests that it got."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"file.bin": CONTENT})
    ranges: bool = True
    length: bool = True
    range_said: str = "bytes {start}-{last}/{all}"
    line_said: bytes | None = None  # instead of an answer
    cut_after: list[int] = field(default_factory=list)  # by request: bytes sent
    hold_after: int | None = None
    holding: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def url(self, name: str = "file.bin") -> str:
        return self.address + name


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            site.asked.append((name, wanted))
            content = site.files.get(name)
            if site.line_said is not None:
                self.wfile.write(site.line_said)
                return
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted is not None and site.ranges:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                last = len(content) - 1
                said = site.range_said.format(start=start, last=last, all=len(content))
                self.send_header("Content-Range", said)
            else:
                self.send_response(200)
            body = content[start:]
            if site.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if site.cut_after:
                body = body[: site.cut_after.pop(0)]
            if site.hold_after is not None:
                self.wfile.write(body[: site.hold_after])
                site.holding.set()
                site.release.wait(30)
                return
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing about clients that hang up."""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = Server(("127.0.0.1", 0), handler(site))
    site.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


def remote(*urls: str, name: str = "file.bin") -> Remote:
    return Remote(name, urls, SHA256, len(CONTENT))


def get(site: Site, path: Path, *names: str, **more) -> Path:
    urls = [site.url(name) for name in names or ("file.bin",)]
    return fetch(remote(*urls, name=path.name), path.parent, pause_s=0, **more)


def test_a_file_arrives_complete_with_progress(site: Site, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = get(site, tmp_path / "new" / "folder" / "file.bin", progress=lambda *at: told.append(at))
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["file.bin"]
    assert told[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [here for _, here, _ in told] == sorted(here for _, here, _ in told)


BEGUN = CONTENT[:1000]


@pytest.mark.parametrize(
    ("part", "faults", "names", "asked"),
    [
        (b"", {"length": False}, "file", ["file"]),
        (b"", {"cut_after": [250_000, 100_000]}, "file", ["file", "file 250000", "file 350000"]),
        (b"", {"cut_after": [250_000], "ranges": False}, "file", ["file", "file 250000"]),
        (b"", {"cut_after": [300_000]}, "file copy", ["file", "copy 300000"]),
        (b"", {}, "gone file", ["gone", "file"]),
        (b"x" * 1000, {}, "file", ["file 1000", "file"]),
        (b"wrong" + CONTENT, {}, "file", ["file"]),
        (BEGUN, {}, "short file", ["short 1000", "file 1000"]),
        (BEGUN, {"range_said": "bytes {start}-{last}/*"}, "file", ["file 1000"]),
        (CONTENT, {}, "file", []),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_a_file_arrives_whole_from_what_is_there_and_what_the_addresses_give(
    site: Site, tmp_path: Path, part: bytes, faults: dict, names: str, asked: list[str]
) -> None:
    site.files |= {"short.bin": CONTENT[:10], "copy.bin": CONTENT}
    vars(site).update(faults)
    if part:
        (tmp_path / "file.bin.part").write_bytes(part)
    path = get(site, tmp_path / "file.bin", *(f"{name}.bin" for name in names.split()))
    assert path.read_bytes() == CONTENT
    assert [
        f"{name.removesuffix('.bin')} {(wanted or '')[6:-1]}".strip() for name, wanted in site.asked
    ] == asked


def test_an_existing_file_is_not_requested(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"mine")
    assert get(site, tmp_path / "file.bin").read_bytes() == b"mine"
    assert site.asked == []


def test_a_later_call_resumes_an_earlier_one(site: Site, tmp_path: Path) -> None:
    site.cut_after = [250_000]
    with pytest.raises(DownloadError, match="ended after 250000 of 700000 bytes"):
        get(site, tmp_path / "file.bin", rounds=1)
    assert os.listdir(tmp_path) == ["file.bin.part"]
    assert get(site, tmp_path / "file.bin", rounds=1).read_bytes() == CONTENT
    assert site.asked[-1] == ("file.bin", "bytes=250000-")
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_corrupted_file_gets_no_final_name_and_is_requested_once(
    site: Site, tmp_path: Path
) -> None:
    site.files["file.bin"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(DownloadError, match="SHA-256") as caught:
        get(site, tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []
    assert len(site.asked) == 1
    assert "\n" not in str(caught.value)
    assert f"put file.bin into {tmp_path} by hand" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("bytes {start}-{last}/700001", "its length is 700001 bytes, not 700000"),
        ("bytes 0-{last}/{all}", "the range 'bytes 0-699999/700000', not with bytes from 1000"),
        ("bytes */{all}", r"the range 'bytes \*/700000', not with bytes from 1000"),
        ("", "the range '', not with bytes from 1000"),
    ],
)
def test_a_part_survives_an_address_with_another_range(
    site: Site, tmp_path: Path, said: str, reason: str
) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    site.range_said = said
    with pytest.raises(DownloadError, match=reason):
        get(site, tmp_path / "file.bin")
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:1000]
    assert [wanted for _, wanted in site.asked] == ["bytes=1000-"] * 3


@pytest.mark.parametrize("line", [b"", b"nonsense\r\n\r\n"])
def test_an_address_that_does_not_answer_in_http_is_a_reason(
    site: Site, tmp_path: Path, line: bytes
) -> None:
    site.line_said = line
    with pytest.raises(DownloadError, match=f"{site.url()}: .+; try again") as caught:
        get(site, tmp_path / "file.bin")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []
    assert len(site.asked) == 3


@pytest.mark.parametrize(
    ("settings", "pauses"),
    [({}, [2.0, 2.0]), ({"rounds": 1}, []), ({"rounds": 4, "pause_s": 0.5}, [0.5, 0.5, 0.5])],
)
def test_there_is_a_pause_before_the_addresses_are_tried_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings, pauses
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("layers.compute.data.files.time.sleep", paused.append)
    urls = [site.url("gone.bin"), site.url("lost.bin")]
    with pytest.raises(DownloadError):
        fetch(remote(*urls), tmp_path, **settings)
    assert paused == pauses
    assert [name for name, _ in site.asked] == ["gone.bin", "lost.bin"] * (len(pauses) + 1)


def test_a_failure_names_every_address_and_its_reason(site: Site, tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9/file.bin"
    with pytest.raises(DownloadError) as caught:
        fetch(remote(site.url("gone.bin"), nobody), tmp_path, pause_s=0)
    message = str(caught.value)
    for part in (f"{site.url('gone.bin')}: HTTP 404", f"{nobody}: ", "refused"):
        assert part in message
    assert "\n" not in message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "length", "words"),
    [
        (CONTENT + b"x", True, "700001 bytes, not 700000"),
        (CONTENT[:-1], True, "699999 bytes, not 700000"),
        (CONTENT * 3, False, "has more than its 700000 bytes"),
    ],
    ids=["longer", "shorter", "without an end"],
)
def test_a_file_of_another_size_is_refused(
    site: Site, tmp_path: Path, content: bytes, length: bool, words: str
) -> None:
    site.files["file.bin"], site.length = content, length
    with pytest.raises(DownloadError, match=words):
        get(site, tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match="FEDMX_CACHE") as caught:
        fetch(remote(), tmp_path / "file" / "folder")
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_refused_before_anything_is_written(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: types.SimpleNamespace(free=1000))
    with pytest.raises(DownloadError, match=r"needs 700000 bytes more .* has 1000 free"):
        get(site, tmp_path / "file.bin")


def test_a_disk_that_fills_up_is_refused_in_one_line(site: Site, tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from layers.compute.data.files import Remote, fetch\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "try:\n"
        f"    fetch({remote(site.url())!r}, Path(sys.argv[1]))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.startswith("DownloadError file.bin: cannot write into")
    assert ran.stdout.count("\n") == 1
    assert not (tmp_path / "file.bin").exists()
    # The next attempt resumes.
    assert get(site, tmp_path / "file.bin").read_bytes() == CONTENT
    assert site.asked[-1] == ("file.bin", "bytes=300000-")


def fetching_process(site: Site, path: Path) -> subprocess.Popen[bytes]:
    script = (
        "import sys; from pathlib import Path;"
        "from layers.compute.data.files import Remote, fetch;"
        f"fetch({remote(site.url())!r}, Path(sys.argv[1]))"
    )
    return subprocess.Popen([sys.executable, "-c", script, str(path.parent)])


def test_the_download_of_a_killed_process_is_resumed(site: Site, tmp_path: Path) -> None:
    site.hold_after = 400_000
    part = tmp_path / "file.bin.part"
    process = fetching_process(site, tmp_path / "file.bin")
    try:
        assert site.holding.wait(60)
        until = time.monotonic() + 60
        # It has written the last whole piece; the rest is in its buffer.
        while not (part.exists() and part.stat().st_size >= 300_000):
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    site.hold_after = None
    here = part.stat().st_size
    assert get(site, tmp_path / "file.bin").read_bytes() == CONTENT
    assert site.asked == [("file.bin", None), ("file.bin", f"bytes={here}-")]


def test_concurrent_processes_download_a_file_once(site: Site, tmp_path: Path) -> None:
    processes = [fetching_process(site, tmp_path / "file.bin") for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["file.bin"]
    assert len(site.asked) == 1


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


@pytest.fixture
def images(site: Site) -> IdxSet:
    rng = np.random.default_rng(1)
    sums = {}
    for split, count in (("train", 40), ("t10k", 10)):
        site.files[f"{split}-images-idx3-ubyte.gz"] = idx(
            rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        )
        site.files[f"{split}-labels-idx1-ubyte.gz"] = idx(rng.integers(0, 10, count, np.uint8))
    for name, content in site.files.items():
        sums[name] = (hashlib.sha256(content).hexdigest(), len(content))

    class Images(IdxSet):
        name = "images"
        mirrors = (site.address,)
        train_x = sums["train-images-idx3-ubyte.gz"]
        train_y = sums["train-labels-idx1-ubyte.gz"]
        test_x = sums["t10k-images-idx3-ubyte.gz"]
        test_y = sums["t10k-labels-idx1-ubyte.gz"]

    return Images()


def test_a_missing_data_set_is_downloaded_into_the_cache_once(
    site: Site, images: IdxSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDMX_DATA", raising=False)
    monkeypatch.setenv("FEDMX_CACHE", str(tmp_path / "cache"))
    told = set()
    first = images.load(Files(progress=lambda name, here, total: told.add(name)))
    assert (len(first.train), len(first.test), first.shape) == (40, 10, (1, 28, 28))
    assert len(site.asked) == len(told) == 4
    again = images.load(Files(download=False))
    assert len(site.asked) == 4
    np.testing.assert_array_equal(again.train.x, first.train.x)
    assert sorted(os.listdir(tmp_path / "cache" / "images")) == sorted(
        name for name in site.files if name != "file.bin"
    )


def test_a_data_folder_comes_before_the_cache_and_is_not_written_to(
    site: Site, images: IdxSet, tmp_path: Path
) -> None:
    (tmp_path / "data" / "images").mkdir(parents=True)
    labels = np.arange(40, dtype=np.uint8) % 10
    plain = gzip.decompress(idx(labels))
    (tmp_path / "data" / "images" / "train-labels-idx1-ubyte").write_bytes(plain)
    loaded = images.load(Files(root=tmp_path / "data", cache=tmp_path / "cache"))
    np.testing.assert_array_equal(loaded.train.y, labels)
    assert os.listdir(tmp_path / "data" / "images") == ["train-labels-idx1-ubyte"]
    assert len(site.asked) == 3


def test_without_downloads_the_error_names_the_folders(
    site: Site, images: IdxSet, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError) as caught:
        images.load(Files(root=tmp_path / "data", cache=tmp_path / "cache", download=False))
    assert str(tmp_path / "data" / "images") in str(caught.value)
    assert str(tmp_path / "cache" / "images") in str(caught.value)
    assert site.asked == []


def test_a_download_must_have_the_published_checksum(
    site: Site, images: IdxSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layers.compute.data.files.time.sleep", lambda seconds: None)
    monkeypatch.setattr(type(images), "train_y", ("0" * 64, images.train_y[1]))
    with pytest.raises(DataError, match="SHA-256"):
        images.load(Files(cache=tmp_path, root=None))
    assert not (tmp_path / "images" / "train-labels-idx1-ubyte.gz").exists()


def test_a_data_folder_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"FEDMX_DATA is .*nowhere, which is not a folder"):
        Mnist().load(Files(download=False))
    with pytest.raises(DataError, match=r"the data folder is .*gone, which is not a folder"):
        Mnist().load(Files(tmp_path / "gone", download=False))


def test_the_environment_sets_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMX_CACHE", "/cache/mine")
    assert default_cache() == Path("/cache/mine")
    monkeypatch.delenv("FEDMX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_cache() == Path("/cache/fedmx")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "fedmx"
