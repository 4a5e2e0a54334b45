"""The static files of the pages, and how long browsers keep them."""

import re
from dataclasses import replace

from farthing.connector.purse_page import purse_page, purses_page
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


def test_a_relay_where_writing_is_free_asks_nobody_to_pay_for_it() -> None:
    free = replace(SETTINGS, price_per_byte=0)
    page = pages.fill(pages.BY_PATH["/"].read(), pages.facts(free))

    assert "Writing is free here." in page
    for text in (page, purses_page(free), purse_page(free, SETTINGS.pubkey)):
        assert "in advance" not in text and "is paid from" not in text
    paid = pages.fill(pages.BY_PATH["/"].read(), pages.facts(SETTINGS))
    assert "Pay in advance" in paid and "is paid from your purse" in paid


def test_where_only_some_kinds_cost_money_the_others_are_free() -> None:
    some = replace(SETTINGS, price_per_byte=0, price_kinds={"1": 5000})

    assert "Other kinds are free. Flat prices: kind 1" in pages.price_in_words(some)
    assert "A byte" not in pages.price_in_words(some)
