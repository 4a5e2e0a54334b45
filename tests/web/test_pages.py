"""The static files of the pages, and how long browsers keep them."""

import re
from dataclasses import replace

from farthing.connector.purse_page import purses_page
from farthing.settings import Settings
from infra.web import pages

SETTINGS = Settings.from_env({"FARTHING_SECRET_KEY": "5" * 64})


def test_a_page_names_only_files_that_are_kept_for_ever_and_named_by_their_content() -> None:
    for template in (each for each in pages.FILES if each.is_template):
        text = pages.fill(template.read(), pages.facts(SETTINGS))
        found = set(re.findall(r'(?:href|src)="(/assets/[^"]+\.(?:css|js))"', text))
        blocking = found - {"/assets/pay.js"}  # a link for developers
        assert len(blocking) == 2
        for path in blocking:
            file = pages.BY_PATH[path]
            assert path.startswith(f"/assets/{pages.VERSION}/")
            assert file.cache == pages.FOR_EVER
        assert template.cache == pages.ALWAYS_ASK, "it names the files of the newest version"


def test_a_script_loads_only_scripts_beside_it() -> None:
    names = {each.file for each in pages.FILES}
    for file in (each for each in pages.FILES if each.file.endswith(".js")):
        for imported in re.findall(r"(?:from |import\()'([^']+)'", file.read()):
            assert imported.startswith("./") and imported[2:] in names, (file.file, imported)


def test_a_changed_file_changes_the_version() -> None:
    texts = [each.read() for each in pages.FILES if each.cache == pages.FOR_EVER]

    assert pages.version_of(texts) == pages.VERSION
    for index, text in enumerate(texts):
        changed = [*texts[:index], f"{text} ", *texts[index + 1 :]]
        assert pages.version_of(changed) != pages.VERSION


def test_what_other_pages_load_keeps_its_name() -> None:
    lasting = {each.path for each in pages.FILES if each.cache == pages.SHORT}

    assert "/assets/pay.js" in lasting
    assert set(re.findall(r'href="(/assets/[^"]+)"', purses_page(SETTINGS))) <= lasting


def test_a_page_says_what_the_relay_speaks() -> None:
    assert "paid subscriptions" in pages.facts(SETTINGS)["speaks"]
    assert "Aether" in pages.facts(SETTINGS)["speaks"]
    assert "Aether" not in pages.facts(replace(SETTINGS, aether=False))["speaks"]
