"""`farthing import` and `farthing export`: verified, resumable, and careful with others' files."""

import json
from pathlib import Path
from typing import Any

import pytest

from farthing.nostr.filters import Filter
from farthing.settings import Settings
from infra.local.commands import transfer
from infra.local.commands.transfer import (
    Importer,
    ImportReport,
    NotExported,
    export_file,
    import_file,
)
from tests.e2e.authors import Author, newest_first
from tests.e2e.stores import exported_ids, farthing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(text + "\n" for text in texts))
    return path


def exported(data: Path, target: Path) -> list[str]:
    export_file(data, target, Filter(), progress=False)
    return [json.loads(line)["id"] for line in target.read_bytes().splitlines()]


class TestImport:
    def test_every_line_is_counted_as_what_it_is(self, data: Path, tmp_path: Path) -> None:
        author, other = Author(), Author()
        old, new = (author.event(kind=0, created_at=at) for at in (100, 200))
        deleted = author.event()
        deletion = author.event("", kind=5, tags=[["e", deleted["id"]]])
        import_file(
            Settings(data=str(data)), write(tmp_path / "before.jsonl", deletion), progress=False
        )
        file = write(
            tmp_path / "events.jsonl",
            note := author.event("grüße 🎩"),
            note,
            new,
            old,
            deleted,
            author.event(kind=20001),
            {**author.event(), "content": "forged"},
            {**author.event(), "sig": other.event()["sig"]},
            "",
            "{",
            '{"id": "\\ud800"}',
            author.event("x" * 420_000),
        )

        done = farthing(data, "import", str(file))

        assert done.returncode == 0
        assert done.stdout.splitlines() == [
            "2 stored, 1 known, 1 superseded, 1 deleted by their authors, 1 ephemeral, 5 invalid",
            "  1 id does not match the event",
            "  2 not JSON",
            "  1 over 405504 bytes",
            "  1 signature does not match",
        ]
        assert "Traceback" not in done.stderr
        assert "100%" in done.stderr  # of the progress bar
        assert exported_ids(data, {"kinds": [0, 1]}) == {note["id"], new["id"]}

    def test_it_goes_on_where_it_was_interrupted(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        author = Author()
        file = write(tmp_path / "events.jsonl", *(author.event() for _ in range(10)))
        monkeypatch.setattr(transfer, "_BATCH", 4)
        store, batches = Importer.store_read, []

        def interrupted(self: Importer, lines: list[Any], report: ImportReport) -> None:
            if batches:
                raise KeyboardInterrupt
            batches.append(len(lines))
            store(self, lines, report)

        monkeypatch.setattr(Importer, "store_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_file(Settings(data=str(data)), file, progress=False)
        monkeypatch.setattr(Importer, "store_read", store)

        report = import_file(Settings(data=str(data)), file, progress=False)
        assert (report.stored, report.duplicates) == (6, 0)
        again = import_file(Settings(data=str(data)), file, progress=False)  # through is through
        assert (again.stored, again.duplicates) == (0, 10)

    def test_another_file_of_the_same_name_is_read_from_its_start(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        author = Author()
        file = write(tmp_path / "events.jsonl", *(author.event() for _ in range(3)))
        with monkeypatch.context() as patch:
            patch.setattr(transfer._Checkpoint, "remove", lambda _: None)
            import_file(Settings(data=str(data)), file, progress=False)
        write(file, *(author.event(f"{number} " * 99) for number in range(5)))

        assert import_file(Settings(data=str(data)), file, progress=False).stored == 5


class TestExport:
    def test_newest_first_and_by_filter(self, data: Path, tmp_path: Path) -> None:
        author = Author()
        events = [author.event(f"{at}\n\u2028", created_at=at // 2) for at in range(2, 30)]
        import_file(Settings(data=str(data)), write(tmp_path / "in.jsonl", *events), progress=False)

        target = tmp_path / "out.jsonl"
        assert exported(data, target) == newest_first(events)
        assert [json.loads(line) for line in target.read_bytes().splitlines()] == sorted(
            events, key=lambda event: (-event["created_at"], event["id"])
        )
        done = farthing(data, "export", "--filter", '{"since": 14}')
        assert done.stdout.count("\n") == 2
        assert "2 exported" in done.stderr

    @pytest.mark.parametrize("left", [0, 1, 5, 700, 701, 1500])
    def test_it_goes_on_behind_the_last_whole_line(
        self, data: Path, tmp_path: Path, left: int
    ) -> None:
        author = Author()
        events = [author.event(created_at=at // 2) for at in range(10)]
        import_file(Settings(data=str(data)), write(tmp_path / "in.jsonl", *events), progress=False)
        target = tmp_path / "out.jsonl"
        whole = exported(data, target)
        text = target.read_bytes()
        target.write_bytes(text[:left])

        assert exported(data, target) == whole
        assert target.read_bytes() == text

    @pytest.mark.parametrize("text", ["my notes", "my\nnotes\n", '{"id":"x"}\n', "{}\nhalf"])
    def test_a_file_that_is_no_export_is_left_alone(
        self, data: Path, tmp_path: Path, text: str
    ) -> None:
        target = tmp_path / "notes.txt"
        target.write_text(text)
        with pytest.raises(NotExported):
            export_file(data, target, Filter(), progress=False)
        done = farthing(data, "export", "-o", str(target))
        assert (done.returncode, done.stderr) == (
            1,
            f"farthing: {target} is no export of ours: it is left as it is\n",
        )
        assert target.read_text() == text
