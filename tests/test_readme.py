"""The README says what is so: its table of settings is the settings' own."""

from pathlib import Path

from farthing.settings import documentation

README = (Path(__file__).parent.parent / "README.md").read_text()


def settings_table() -> str:
    rows = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {about} |"
        for name, default, about in documentation()
    ]
    return "\n".join(["| variable | default | what it is |", "|---|---|---|", *rows])


def test_every_setting_is_documented_as_it_is() -> None:
    table = README.partition("<!-- settings -->")[2].partition("<!-- /settings -->")[0]
    assert table.strip() == settings_table()
