"""Draws the diagrams of docs/diagrams as SVG files that are readable on light and dark pages.

After a change of this file, write them again::

    python .ci/site/diagrams.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "diagrams"
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #20242a; text-anchor: middle }
.small { font-size: 11px } .code { font-family: monospace }
.page { fill: #ffffff } .box { fill: #f3f4f6; stroke: #6b7280 }
.area { fill: none; stroke: #9ca3af }
.server { fill: #dbe7ff; stroke: #3b62c4 } .client { fill: #ffe7cc; stroke: #b4650f }
.wire { fill: #dff3e3; stroke: #2e7d43 } .line { stroke: #20242a; fill: none }
.dashed { stroke-dasharray: 4 3 } .tip { fill: #20242a }
@media (prefers-color-scheme: dark) {
text { fill: #e6e8eb } .page { fill: #1e2129 } .box { fill: #2b2f3a; stroke: #9ca3af }
.area { stroke: #6b7280 } .server { fill: #1f3566; stroke: #8fb0ff }
.client { fill: #5a3410; stroke: #ffb366 } .wire { fill: #1d4328; stroke: #86d69a }
.line { stroke: #e6e8eb } .tip { fill: #e6e8eb }
}
"""


class Drawing:
    """An SVG picture that grows by shapes; lengths are in pixels."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.size, self.label = (width, height), label
        self.shapes: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write lines of text whose middle is at (x, y)."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            at = y + 4.5 + 16 * (number - (len(lines) - 1) / 2)
            self.shapes.append(f'<text x="{x}" y="{at}" class="{kind}">{escape(line)}</text>')

    def box(self, x: float, y: float, width: float, height: float, text: str, kind: str) -> None:
        """Draw a box with its text in the middle."""
        size = f'width="{width}" height="{height}"'
        self.shapes.append(f'<rect x="{x}" y="{y}" {size} rx="5" class="{kind}"/>')
        if text:
            self.text(x + width / 2, y + height / 2, text)

    def line(self, *points: tuple[float, float], kind: str = "", tip: bool = True) -> None:
        """Draw a line through points, with an arrow's tip at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        end = ' marker-end="url(#tip)"' if tip else ""
        self.shapes.append(f'<polyline points="{path}" class="line {kind}"{end}/>')

    def svg(self) -> str:
        """Return the picture."""
        width, height = self.size
        tip = '<path d="M0,0 L8,4 L0,8 z" class="tip"/>'
        opening = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img">',
            f"<title>{escape(self.label)}</title>",
            f"<style>{STYLE}</style>",
            f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="8" refY="4"'
            f' orient="auto">{tip}</marker></defs>',
            f'<rect width="{width}" height="{height}" rx="6" class="page"/>',
        ]
        return "\n".join([*opening, *self.shapes, "</svg>", ""])


def hooks() -> Drawing:
    """Two hooks: the task passes them from left to right, the update from right to left."""
    drawing = Drawing(760, 236, "A task and an update pass two hooks")
    drawing.box(10, 34, 340, 192, "", "area")
    drawing.box(410, 34, 340, 192, "", "area")
    drawing.text(180, 18, "server")
    drawing.text(580, 18, "client")
    columns = (20, 130, 240, 420, 530, 640)
    kinds = ("box", "server", "server", "client", "client", "box")
    rows = (
        (62, ("model", "A.send", "B.send", "B.receive", "A.receive", "training")),
        (162, ("aggregator", "A.receive", "B.receive", "B.send", "A.send", "update")),
    )
    for y, texts in rows:
        for x, text, kind in zip(columns, texts, kinds, strict=True):
            drawing.box(x, y, 100, 40, text, kind)
        for left, right in pairwise(columns):
            ends = (left + 100, right) if y == 62 else (right, left + 100)
            drawing.line((ends[0], y + 20), (ends[1], y + 20))
    drawing.line((690, 102), (690, 162))
    drawing.line((70, 162), (70, 102), kind="dashed")
    drawing.text(380, 62, "task", "small")
    drawing.text(380, 206, "update", "small")
    drawing.text(625, 132, "A.samples, A.gradient", "small")
    drawing.text(145, 132, "on_accepted, conclude", "small")
    return drawing


def lanes() -> Drawing:
    """Three plans: how the model passes through their clients."""
    drawing = Drawing(800, 200, "Three plans with one, two and three lanes")
    plans: Sequence[tuple[int, str, Sequence[Sequence[int]]]] = (
        (0, "((3,), (7,), (8,))", ((3,), (7,), (8,))),
        (205, "((3, 7, 8),)", ((3, 7, 8),)),
        (535, "((1, 4), (2, 9))", ((1, 4), (2, 9))),
    )
    for left, title, rows in plans:
        longest = max(map(len, rows))
        end = left + 88 + 60 * longest
        drawing.text((left + 15 + end + 44) / 2, 20, title, "code")
        drawing.box(left + 15, 92, 34, 34, "w", "server")
        drawing.box(end, 92, 44, 34, "fold", "server")
        for number, lane in enumerate(rows):
            y = 109 + 52 * (number - (len(rows) - 1) / 2)
            x = left + 49
            for place, client in enumerate(lane):
                drawing.line((x, 109 if not place else y), (left + 82 + 60 * place, y))
                drawing.box(left + 82 + 60 * place, y - 17, 34, 34, str(client), "client")
                x = left + 116 + 60 * place
            drawing.line((x, y), (end, 109))
    return drawing


def clock() -> Drawing:
    """The virtual clock: the events of three clients and a deadline on one line."""
    drawing = Drawing(760, 250, "The virtual clock orders the events of three clients")
    scale, left = 55, 90
    clients = ((0, 1, 4.5, 6), (1, 0.5, 2, 3.2), (2, 2, 8.5, 10.2))
    for number, download, trained, sent in clients:
        y = 34 + 46 * number
        drawing.text(45, y + 15, f"client {number}")
        steps = ((0, download, "", "wire"), (download, trained, "training", "client"))
        for begin, end, text, kind in (*steps, (trained, sent, "", "wire")):
            drawing.box(left + scale * begin, y, scale * (end - begin), 30, text, kind)
    drawing.text(117, 18, "download", "small")
    drawing.text(380, 18, "upload", "small")
    drawing.line((left, 184), (740, 184))
    drawing.text(724, 168, "virtual time", "small")
    events = ((0, "tasks"), (3.2, "update of 1"), (6, "update of 0"), (9.2, "deadline"))
    for number, (at_s, text) in enumerate(events):
        x = left + scale * at_s
        drawing.line((x, 178), (x, 190), tip=False)
        drawing.text(x, 204, f"{number + 1}. {text}", "small")
    x = left + scale * 9.2
    drawing.line((x, 20), (x, 178), kind="dashed", tip=False)
    drawing.text(380, 234, "The clock waits for client 1, then for client 0. Client 2 is lost.")
    return drawing


def round_() -> Drawing:
    """A round: the commands that it gives to its carrier, and the events that come back."""
    drawing = Drawing(760, 470, "The commands and events of a round")
    places = {"round": 110, "carrier": 400, "client": 660}
    for (name, x), kind in zip(places.items(), ("server", "wire", "client"), strict=True):
        drawing.box(x - 60, 10, 120, 30, name, kind)
        drawing.line((x, 40), (x, 460), kind="dashed", tip=False)
    steps = (
        ("round", "carrier", "Ask: the selector's question"),
        ("carrier", "client", "question"),
        ("client", "carrier", "answer"),
        ("carrier", "round", "Answered"),
        ("round", "carrier", "SendTask, SetTimer"),
        ("carrier", "client", "task"),
        ("client", "client", "receive, train, send"),
        ("client", "carrier", "update"),
        ("carrier", "round", "Update"),
        ("round", "round", "check, decode, fold"),
        ("carrier", "round", "TimerFired or ClientLost"),
        ("round", "carrier", "Cancel, Close"),
        ("round", "round", "conclude: the next state"),
    )
    for number, (source, target, text) in enumerate(steps):
        y = 62 + 31 * number
        begin, end = places[source], places[target]
        if source == target:
            drawing.box(begin - 88, y - 8, 176, 24, text, "box")
        else:
            drawing.line((begin, y + 8), (end, y + 8))
            drawing.text((begin + end) / 2, y, text, "small")
    return drawing


def replay() -> Drawing:
    """A replay: the recorded events go into the same round, and its commands are compared."""
    drawing = Drawing(760, 210, "The steps of a replay")
    drawing.box(20, 80, 130, 50, "journal.jsonl", "wire")
    drawing.box(230, 80, 130, 50, "JournalClients", "wire")
    drawing.box(440, 80, 130, 50, "the round", "server")
    drawing.box(620, 80, 125, 50, "model_sha256\nas recorded?", "box")
    drawing.box(230, 155, 130, 45, "executor", "client")
    drawing.line((150, 105), (230, 105))
    drawing.text(190, 88, "1. events", "small")
    drawing.line((285, 130), (285, 155))
    drawing.line((305, 155), (305, 130))
    drawing.text(150, 178, "2. trains each client\nthat sent an update", "small")
    drawing.text(455, 178, "3. its hash is the recorded one?", "small")
    drawing.line((360, 95), (440, 95))
    drawing.line((440, 117), (360, 117))
    drawing.line((505, 80), (505, 45), (295, 45), (295, 80), kind="dashed")
    drawing.text(400, 32, "4. its commands are the recorded ones?", "small")
    drawing.line((570, 105), (620, 105))
    drawing.text(682, 62, "5. the state", "small")
    return drawing


def secure_sum() -> Drawing:
    """A secure sum: what the questions and the task of a round bring, and what they hide."""
    drawing = Drawing(760, 440, "The questions and the task of a round with a secure sum")
    places = {"server": 120, "client": 640}
    for (name, x), kind in zip(places.items(), ("server", "client"), strict=True):
        drawing.box(x - 60, 10, 120, 30, name, kind)
        drawing.line((x, 40), (x, 430), kind="dashed", tip=False)
    steps = (
        ("1. keys", "", "three public keys, a commitment, signed with the certificate"),
        ("2. shares", "the keys of all", "a sealed share of each secret for each neighbour"),
        ("task", "the model; what neighbours have sealed", "masked whole numbers"),
        ("3. consistency", "whose numbers have arrived", "the signature of that list"),
        ("4. opening", "all signatures", "of each neighbour one share: of its seed, or of its key"),
    )
    for number, (name, down, up) in enumerate(steps):
        y = 62 + 76 * number
        drawing.box(6, y, 104, 52, name, "box")
        drawing.line((120, y + 14), (640, y + 14))
        drawing.text(380, y + 4, down or "a question", "small")
        drawing.line((640, y + 46), (120, y + 46))
        drawing.text(380, y + 36, up, "small")
    return drawing


def drawings() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each picture."""
    for draw in (hooks, lanes, clock, round_, replay, secure_sum):
        yield f"{draw.__name__.strip('_')}.svg", draw().svg()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawings():
        (FOLDER / name).write_text(text, encoding="utf-8")
