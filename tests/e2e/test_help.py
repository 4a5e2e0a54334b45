"""What `farthing --help` and `farthing COMMAND --help` say."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farthing.settings import Settings
from infra.local import cli
from infra.local.server.identity import with_identity

_SILENT = (None, "", False, "{}", [], argparse.SUPPRESS)


def arguments(
    parser: argparse.ArgumentParser, path: str = "farthing"
) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                yield from arguments(one, f"{path} {name}")
        else:
            yield f"{path} {'/'.join(action.option_strings) or action.dest}", action


def test_every_argument_is_explained_with_its_default() -> None:
    found = dict(arguments(cli.parser()))

    assert len(found) > 100
    assert [name for name, action in found.items() if not action.help] == []
    unsaid = [
        name
        for name, action in found.items()
        if action.default not in _SILENT
        and not {"%(default)s", str(action.default)} & set((action.help or "").split())
    ]
    assert unsaid == []


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2

    shown = capsys.readouterr().err
    assert all(
        f"\n    {command.name} " in shown for command in cli.COMMANDS if len(command.name) < 9
    )


@pytest.mark.parametrize(
    "typed",
    ["ban", "allow", "follows", "broadcasts", "relays", "capability list", "subscriptions list"],
)
def test_an_empty_list_says_so(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FARTHING_DATA", str(tmp_path / "data"))
    with_identity(Settings.from_env({"FARTHING_DATA": str(tmp_path / "data")}))

    assert cli.main(typed.split()) == 0

    shown = capsys.readouterr()
    assert len((shown.out + shown.err).splitlines()) == 1, "a sentence, and no list"


def test_what_cannot_be_broadcast_gets_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FARTHING_DATA", str(tmp_path / "data"))

    assert cli.main(["post", "--broadcast", "a stranger's"]) == 1

    shown = capsys.readouterr()
    assert "use --owner" in shown.err and shown.out == ""


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("FARTHING_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def type_in(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return type_in


def test_a_dash_is_stdout_and_no_file(
    typed: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    assert typed("export", "--quiet", "-o", "-") == (0, "", "0 exported\n")
    assert not (tmp_path / "-").exists()


def test_a_file_that_cannot_be_read_is_named_in_words(
    typed: Callable[..., tuple[int, str, str]],
) -> None:
    assert typed("import", "nowhere") == (1, "", "farthing: nowhere: No such file or directory\n")
