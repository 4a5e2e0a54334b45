"""Nobody but the owner reads the database: not a new one, and not one of an older version."""

from pathlib import Path

from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Put, Table


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_a_new_database_is_the_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "data"
    engine = SqliteEngine(folder)
    engine.write(Put(Table.EVENTS, "a", "b", {"x": 1}))
    try:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(list(folder.iterdir())) == 3  # the database, its log and its index
        assert modes(folder) == {0o600}
    finally:
        engine.close()


def test_an_older_one_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    SqliteEngine(folder).close()
    for path in (folder, folder / "farthing.db"):
        path.chmod(0o755)
    (folder / "farthing.db-wal").touch(0o644)

    SqliteEngine(folder).close()

    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes(folder) == {0o600}
