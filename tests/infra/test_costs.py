"""What a deployment costs: measured amounts, a table of prices, and sums of whole picodollars."""

import json
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.settings import Settings
from infra.costs.bill import Usage, by_service, dollars, total, total_beyond_free
from infra.costs.idle import Line, NoTemplates, Templates, idle
from infra.costs.measured import MILLION, Measured, Place, Scene
from infra.costs.prices import PICO, PRICES, InvalidPrices, Unit, with_changes
from infra.local.commands.cost import done, run
from infra.permissions import TABLES
from tests.infra.conftest import ROOT, Stacks

PLACE = Place(dict.fromkeys(TABLES, 512))


@pytest.fixture
def scene() -> Scene:
    return Scene(PLACE, Settings())


def each(measured: Measured, unit: Unit) -> int:
    """Of one, where a million were measured."""
    whole, rest = divmod(measured.usage[unit], MILLION)
    assert not rest, (unit, measured.usage[unit])
    return whole


class TestPrices:
    def test_everything_that_is_counted_has_one(self) -> None:
        assert set(PRICES) == set(Unit)

    def test_write_units_have_their_list_price(self) -> None:
        assert total(Counter({Unit.WRITE_UNITS: MILLION}), PRICES) == PICO * 625 // 1000

    def test_a_gigabyte_second_of_lambda(self) -> None:
        second = Counter({Unit.FUNCTION_TIME: 1024 * 1000})
        assert total(second, PRICES) == 13_333_400
        assert total(Counter({Unit.FUNCTION_TIME: 1}), PRICES) == 14  # rounded up

    def test_what_is_free_is_free_once(self) -> None:
        assert PRICES[Unit.ALARMS].beyond_free(10) == 0
        assert PRICES[Unit.ALARMS].beyond_free(12) == 2 * PICO // 10

    @given(st.dictionaries(st.sampled_from(list(Unit)), st.integers(0, 10**15)))
    def test_services_add_up_to_the_whole(self, amounts: dict[Unit, int]) -> None:
        usage: Usage = Counter(amounts)
        whole = total(usage, PRICES)
        assert type(whole) is int
        assert sum(by_service(usage, PRICES).values()) == whole
        assert total_beyond_free(usage, PRICES) <= whole

    def test_prices_of_a_file_replace_those_of_the_table(self, tmp_path: Path) -> None:
        path = tmp_path / "prices.json"
        path.write_text('{"write_units": {"dollars": "0.71", "per": 1000000}}')
        changed = with_changes(path)
        assert total(Counter({Unit.WRITE_UNITS: MILLION}), changed) == PICO * 71 // 100
        assert changed[Unit.READ_UNITS] == PRICES[Unit.READ_UNITS]

    @pytest.mark.parametrize(
        "given",
        ['{"write_units": {"dollars": "much"}}', '{"writes": {"dollars": "1"}}',
         '{"write_units": 1}', '{"write_units": {"dollars": "-1"}}'],
    )  # fmt: skip
    def test_what_is_no_price_is_named(self, tmp_path: Path, given: str) -> None:
        path = tmp_path / "prices.json"
        path.write_text(given)
        with pytest.raises(InvalidPrices, match="write"):
            with_changes(path)

    def test_picodollars_are_rounded_to_cents(self) -> None:
        assert [dollars(each) for each in (0, PICO // 200, PICO // 201, 1234 * PICO)] == [
            "0.00", "0.01", "0.00", "1,234.00",
        ]  # fmt: skip


class TestMeasured:
    def test_a_paid_write_uses_one_call_and_13_write_units(self, scene: Scene) -> None:
        """As tests/ilp/test_costs.py has it for one."""
        measured = scene.paid_write()
        assert each(measured, Unit.WRITE_UNITS) == 13
        assert each(measured, Unit.HTTP_REQUESTS) == each(measured, Unit.EDGE_REQUESTS) == 1
        assert each(measured, Unit.FUNCTION_CALLS) == 1
        assert each(measured, Unit.SOCKET_MESSAGES) == 0
        assert {"EventsStored", "Revenue"} <= measured.metrics

    def test_a_free_write_is_a_message_and_its_answer(self, scene: Scene) -> None:
        measured = scene.free_write()
        assert each(measured, Unit.WRITE_UNITS) == 8
        assert each(measured, Unit.SOCKET_MESSAGES) == 2

    def test_a_delivery_is_one_message(self, scene: Scene) -> None:
        measured = scene.delivery()
        assert each(measured, Unit.SOCKET_MESSAGES) == 1
        assert measured.usage[Unit.READ_UNITS] < 2 * MILLION
        assert measured.usage[Unit.EDGE_BYTES] > 500 * MILLION

    def test_a_paid_delivery_takes_few_write_units(self, scene: Scene) -> None:
        measured = scene.paid_delivery()
        assert each(measured, Unit.WRITE_UNITS) <= 3
        assert each(measured, Unit.FUNCTION_CALLS) == 1

    def test_a_broadcast_is_paid_in_few_transactions(self, scene: Scene) -> None:
        """Taken, reserved, held and settled, and its end."""
        measured = scene.placement()
        assert measured.usage[Unit.WRITE_UNITS] <= 40 * MILLION
        assert each(measured, Unit.FUNCTION_CALLS) == 1

    def test_numbers_are_cheaper_by_the_dozen(self) -> None:
        alone, batch = (Scene(PLACE, Settings()).numbering(n) for n in (1, 49))
        assert each(alone, Unit.WRITE_UNITS) == 8
        assert batch.usage[Unit.WRITE_UNITS] < 5 * MILLION
        assert batch.usage[Unit.FUNCTION_CALLS] < MILLION // 40

    def test_a_hundred_events_are_a_hundred_messages(self, scene: Scene) -> None:
        measured = scene.request()
        assert each(measured, Unit.SOCKET_MESSAGES) == 1 + 100 + 1
        assert each(measured, Unit.READ_UNITS) < 120

    def test_a_live_feed_gets_one_message_a_change(self, scene: Scene) -> None:
        assert each(scene.push(), Unit.SOCKET_MESSAGES) == 1

    def test_a_sync_of_what_is_alike_is_short(self, scene: Scene) -> None:
        measured = scene.sync()
        assert each(measured, Unit.SOCKET_MESSAGES) == 3
        assert measured.usage[Unit.READ_UNITS] < 100 * MILLION

    def test_a_paid_event_keeps_eleven_items(self, scene: Scene) -> None:
        """Event, six postings, receipt, and three entries of its number: 100 bytes each, and what
        they hold."""
        assert 11 * 100 + scene.note_size() < scene.kept_bytes() < 6000

    def test_without_an_edge_there_is_nothing_to_pay_there(self) -> None:
        scene = Scene(Place(PLACE.memory, edge=False), Settings())
        edge = {Unit.EDGE_REQUESTS, Unit.EDGE_CALLS, Unit.EDGE_BYTES}
        for measured in (scene.paid_write(), scene.connection(), scene.request()):
            assert not edge & set(+measured.usage)

    def test_the_waits_cost_by_the_megabyte(self) -> None:
        """A larger function computes faster, and waits as long at a higher price."""
        small, large = (
            Scene(Place(dict.fromkeys(TABLES, memory)), Settings()).sweep().usage
            for memory in (512, 1769)
        )
        assert small[Unit.FUNCTION_TIME] // 512 > large[Unit.FUNCTION_TIME] // 1769
        assert small[Unit.FUNCTION_TIME] < large[Unit.FUNCTION_TIME]


@pytest.fixture(scope="module")
def by_clock() -> dict[str, Measured]:
    return {
        "sweeper": Scene(PLACE, Settings()).sweep(),
        "outbox": Scene(PLACE, Settings()).outbox(),
        "feeds": Scene(PLACE, Settings()).feeds(),
        "upkeep": Scene(PLACE, Settings()).upkeep(),
    }


class TestIdle:
    def lines(
        self, assemblies: Path, by_clock: dict[str, Measured], variant: str = "production",
        prefix: str = "farthing-", gigabytes: int = 0,
    ) -> dict[str, Line]:  # fmt: skip
        found = idle(Templates.read(assemblies / variant), prefix, by_clock, gigabytes)
        return {line.name.split(",")[0]: line for line in found}

    def test_idle_use_is_counted_from_the_templates(
        self, assemblies: Path, production: Stacks, by_clock: dict[str, Measured]
    ) -> None:
        lines = self.lines(assemblies, by_clock)
        alarms = production.properties("AWS::CloudWatch::Alarm")
        banded = sum("ThresholdMetricId" in alarm for alarm in alarms)
        assert banded == 1
        assert lines["alarms"].usage[Unit.ALARMS] == len(alarms) + 2 * banded
        assert lines["secrets"].usage[Unit.SECRETS] == 2
        assert lines["dashboards"].usage == {Unit.DASHBOARDS: 2}
        assert lines["Glue job farthing-trust"].usage[Unit.SPARE_JOB_SECONDS] == 30 * 90 * 2
        assert lines["sweeper"].usage[Unit.FUNCTION_CALLS] == 30 * 24 * 60
        assert lines["upkeep"].usage[Unit.FUNCTION_CALLS] == 30 * 24 * 6
        assert lines["sweeper"].usage[Unit.METRICS] == 2

    def test_an_idle_deployment_costs_under_12_dollars(
        self, assemblies: Path, production: Stacks, by_clock: dict[str, Measured]
    ) -> None:
        lines = self.lines(assemblies, by_clock).values()
        whole = sum((line.usage for line in lines), Counter[Unit]())
        assert total(whole, PRICES) < 12 * PICO
        assert total_beyond_free(whole, PRICES) < 4 * PICO

    @pytest.mark.parametrize(
        ("metrics", "unit"), [(50, Unit.DASHBOARDS), (51, Unit.LARGE_DASHBOARDS)]
    )
    def test_only_a_small_dashboard_is_free(self, metrics: int, unit: Unit) -> None:
        """Three dashboards are free, if they have fifty metrics at most."""
        body = json.dumps({"widgets": [{"properties": {"metrics": [["m"]] * metrics}}]})
        board = {"Type": "AWS::CloudWatch::Dashboard",
                 "Properties": {"DashboardBody": {"Fn::Join": ["", [body]]}}}  # fmt: skip
        (line,) = [
            each
            for each in idle(Templates([{"Board": board}]), "", {})
            if each.name == "dashboards"
        ]
        assert line.usage == {unit: 1}
        assert bool(total_beyond_free(line.usage, PRICES)) == (unit is Unit.LARGE_DASHBOARDS)

    def test_glue_6_is_cheaper(self) -> None:
        """By 30 % than $0.44, and than $0.29 on spare capacity, for a DPU and hour."""
        hour = Counter({Unit.JOB_SECONDS: 3600}), Counter({Unit.SPARE_JOB_SECONDS: 3600})
        assert [total(each, PRICES) * 1000 // PICO for each in hour] == [308, 203]

    def test_what_is_left_out_costs_nothing(
        self, assemblies: Path, small: Stacks, by_clock: dict[str, Measured]
    ) -> None:
        lines = self.lines(assemblies, by_clock, "small", "small-")
        assert not [name for name in lines if name.startswith(("Glue", "farthing-export"))]
        assert not Templates.read(assemblies / "small").place("small-").edge

    def test_what_is_stored_is_paid_for_with_its_copies(
        self, assemblies: Path, production: Stacks, by_clock: dict[str, Measured]
    ) -> None:
        lines = self.lines(assemblies, by_clock, gigabytes=10)
        stored = lines["10 GB stored"].usage
        assert total(stored, PRICES) == 10 * (25 + 20) * PICO // 100
        assert lines["farthing-export-events"].usage[Unit.EXPORTED_BYTES] == 30 * 10 * 10**9

    def test_functions_are_of_the_size_that_they_have(
        self, assemblies: Path, production: Stacks
    ) -> None:
        memory = Templates.read(assemblies / "production").place("farthing-").memory
        assert set(TABLES) <= set(memory)
        assert (memory["negentropy"], memory["ilp"]) == (1024, 512)

    def test_without_templates_the_command_to_make_them_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(NoTemplates, match="make synth"):
            Templates.read(tmp_path)


class TestCommand:
    def run(self, templates: Path, **arguments: Any) -> int:
        given = {"prices": None, "gigabytes": 0, "json": False, **arguments}
        return run(Namespace(templates=templates, **given), Settings())

    def test_json_has_all_figures_in_picodollars(
        self, assemblies: Path, production: Stacks, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(assemblies / "production", json=True) == 0
        figures = json.loads(capsys.readouterr().out)
        costs = {row["name"]: row["picodollars"] for row in figures["million"]}
        whole = costs["paid write, all told"]
        parts = [row["picodollars"] for row in figures["million"][1:4]]
        assert abs(sum(parts) - whole) < 10  # picodollars, of rounding up
        assert costs["connection minute"] == PICO // 4
        assert figures["idle_month"]

    def test_the_docs_show_what_it_says(
        self, assemblies: Path, production: Stacks, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """But for Lambda's share, which is as the machine is that measures it."""
        assert self.run(assemblies / "production") == 0
        shown = (ROOT / "docs/aws.md").read_text()
        shown = shown.partition("<!-- cost -->")[2].partition("<!-- /cost -->")[0]
        assert _figures(shown) == _figures(capsys.readouterr().out)


def _figures(text: str) -> dict[str, str]:
    """DynamoDB's share of each row of the table: units, by the price."""
    rows = text.partition("A million of")[2].partition("That note")[0].splitlines()[1:]
    return {row[:34].strip(): row[43:55].strip() for row in rows if row.strip()}


def test_each_thing_is_measured_by_itself() -> None:
    """In whatever order: what one has stored is not in the way of the next."""
    first, again = (
        {line.name: line.usage[Unit.READ_UNITS] for line in done(PLACE, Settings())}
        for _ in range(2)
    )
    assert first == again
