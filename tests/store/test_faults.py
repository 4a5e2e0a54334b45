"""What the DynamoDB engine makes of throttling, conflicts, lost answers and half-done batches, and
what the faulty engine plays to those above."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from farthing.store.attributes import marshal, marshal_key
from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.dynamodb_faults import Backoff
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import (
    Absent,
    Add,
    Check,
    ConditionFailed,
    Contended,
    Delete,
    Engine,
    Equals,
    OutcomeUnknown,
    Put,
    Query,
    StoreError,
    Table,
    Throttled,
    TransactionCancelled,
    TransactWrite,
    Write,
)
from tests.store.conftest import CREDENTIALS, REGION
from tests.store.faulty import WRITES, Crash, Fault, FaultyEngine, at, nth, seeded

LEDGER, POSTINGS = Table.LEDGER, Table.POSTINGS
ATTEMPTS = Backoff.__dataclass_fields__["attempts"].default
ENDPOINT = "https://dynamodb.test"

Call = tuple[str, dict[str, Any]]
Answer = dict[str, Any] | Exception | Callable[[dict[str, Any]], dict[str, Any]]


class Wire:
    """Stands in for botocore's call: takes the calls down and gives the answers laid out."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.calls: list[Call] = []
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def __call__(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((operation, request))
        # The last answer is given for ever.
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


@pytest.fixture(scope="module")
def _wired() -> Iterator[tuple[DynamoDBEngine, Wire]]:
    """Made once: a client takes botocore a good while."""
    wire = Wire()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        engine = DynamoDBEngine(region=REGION, sleep=wire.pause, jitter=lambda: 1.0)
        patch.setattr(engine.connection.client, "_make_api_call", wire)
        yield engine, wire
        engine.close()


@pytest.fixture
def wire(_wired: tuple[DynamoDBEngine, Wire]) -> Wire:
    wire = _wired[1]
    wire.answers, wire.calls, wire.pauses = [], [], []
    return wire


@pytest.fixture
def dynamodb(_wired: tuple[DynamoDBEngine, Wire], wire: Wire) -> DynamoDBEngine:
    return _wired[0]


def error(code: str, status: int = 400, **more: Any) -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": code},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, "Operation")


def cancelled(*reasons: str | tuple[str, dict[str, Any]]) -> ClientError:
    pairs = [reason if isinstance(reason, tuple) else (reason, None) for reason in reasons]
    listed = [{"Code": code} | ({"Item": item} if item else {}) for code, item in pairs]
    return error("TransactionCanceledException", CancellationReasons=listed)


THROTTLES = [
    error("ProvisionedThroughputExceededException"),
    error("ThrottlingException"),
    error("RequestLimitExceeded"),
    EndpointConnectionError(endpoint_url=ENDPOINT),
    ConnectTimeoutError(endpoint_url=ENDPOINT),
]
LOSSES = [
    error("InternalServerError", 500),
    error("ServiceUnavailable", 503),
    error("Unheard", 502),
    ReadTimeoutError(endpoint_url=ENDPOINT),
]
CONFLICTS = [error("TransactionConflictException"), error("ReplicatedWriteConflictException")]
PUT = Put(LEDGER, "p", "s", {"n": 1})
ADD = Add(LEDGER, "p", "s", {"n": 1})


def name_of(value: object) -> str:
    return str(value)


class TestSingleCalls:
    @pytest.mark.parametrize("fault", [*THROTTLES, *LOSSES], ids=name_of)
    def test_a_failed_read_is_repeated(
        self, dynamodb: DynamoDBEngine, wire: Wire, fault: Exception
    ) -> None:
        wire.answers = [fault, fault, {"Item": marshal(PUT.item) | marshal_key("p", "s")}]
        assert dynamodb.get(LEDGER, "p", "s") == {"n": 1}
        assert len(wire.calls) == 3

    @pytest.mark.parametrize("fault", [*THROTTLES, *LOSSES], ids=name_of)
    def test_reads_end_as_throttled(
        self, dynamodb: DynamoDBEngine, wire: Wire, fault: Exception
    ) -> None:
        wire.answers = [fault]
        for read in (
            lambda: dynamodb.get(LEDGER, "p", "s"),
            lambda: dynamodb.get_many(LEDGER, [("p", "s")]),
            lambda: dynamodb.query(Query(LEDGER, "p")),
        ):
            wire.calls.clear()
            with pytest.raises(Throttled):
                read()
            assert len(wire.calls) == ATTEMPTS

    def test_pauses_double_up_to_a_bound(self, dynamodb: DynamoDBEngine, wire: Wire) -> None:
        wire.answers = [THROTTLES[0]]
        with pytest.raises(Throttled):
            dynamodb.get(LEDGER, "p", "s")
        assert wire.pauses == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8]
        paused: list[float] = []
        Backoff(paused.append, lambda: 0.5).pause(20)
        assert paused == [0.5]

    @pytest.mark.parametrize("write", [PUT, ADD, Delete(LEDGER, "p", "s", Equals("n", 1))])
    @pytest.mark.parametrize("fault", [*THROTTLES, *CONFLICTS], ids=name_of)
    def test_writes_that_were_not_made_are_repeated(
        self, dynamodb: DynamoDBEngine, wire: Wire, write: Write, fault: Exception
    ) -> None:
        wire.answers = [fault, fault, {}]
        assert dynamodb.write(write) is None
        wire.answers = [fault]
        with pytest.raises(Contended if fault in CONFLICTS else Throttled):
            dynamodb.write(write)

    @pytest.mark.parametrize("fault", LOSSES, ids=name_of)
    def test_an_add_whose_answer_was_lost_is_not_repeated(
        self, dynamodb: DynamoDBEngine, wire: Wire, fault: Exception
    ) -> None:
        wire.answers = [THROTTLES[0], fault]
        with pytest.raises(OutcomeUnknown):
            dynamodb.write(ADD)
        assert len(wire.calls) == 2

    @pytest.mark.parametrize("fault", LOSSES, ids=name_of)
    def test_a_put_whose_answer_was_lost_is_repeated(
        self, dynamodb: DynamoDBEngine, wire: Wire, fault: Exception
    ) -> None:
        wire.answers = [fault, {}]
        dynamodb.write(PUT)
        wire.answers = [fault, THROTTLES[0]]
        with pytest.raises(OutcomeUnknown):
            dynamodb.write(PUT)

    def test_a_condition_that_fails_says_what_stands_there(
        self, dynamodb: DynamoDBEngine, wire: Wire
    ) -> None:
        standing = marshal({"b": b"x"}) | marshal_key("p", "s")
        wire.answers = [error("ConditionalCheckFailedException", Item=standing)]
        with pytest.raises(ConditionFailed) as failed:
            dynamodb.write(Put(LEDGER, "p", "s", {}, Absent()))
        assert failed.value.current == {"b": b"x"}
        assert len(wire.calls) == 1

    @pytest.mark.parametrize(
        "fault",
        [error("ValidationException"), error("AccessDeniedException"), NoCredentialsError()],
        ids=name_of,
    )
    def test_a_fault_that_lasts_is_not_tried_again(
        self, dynamodb: DynamoDBEngine, wire: Wire, fault: Exception
    ) -> None:
        wire.answers = [fault]
        for call in (lambda: dynamodb.get(LEDGER, "p", "s"), lambda: dynamodb.transact([PUT])):
            wire.calls.clear()
            with pytest.raises(StoreError):
                call()
            assert len(wire.calls) == 1

    def test_every_read_is_consistent(self, dynamodb: DynamoDBEngine, wire: Wire) -> None:
        wire.answers = [{"Items": [], "Responses": {}}]
        dynamodb.get(LEDGER, "p", "s")
        dynamodb.query(Query(LEDGER, "p"))
        dynamodb.get_many(LEDGER, [("p", "s")])
        requests = [request for _, request in wire.calls]
        requests[2] = requests[2]["RequestItems"]["ledger"]
        assert [request["ConsistentRead"] for request in requests] == [True] * 3

    @pytest.mark.parametrize("value", [1.5, [float("nan")]])
    def test_a_float_is_refused_before_it_is_sent(
        self, dynamodb: DynamoDBEngine, wire: Wire, value: object
    ) -> None:
        # On one machine floats pass, for speed: what is kept is checked where it is made.
        for call in (dynamodb.write, lambda put: dynamodb.transact([put])):
            with pytest.raises(TypeError):
                call(Put(LEDGER, "p", "s", {"n": value}))
        assert wire.calls == []


class TestTransactions:
    STEPS: tuple[TransactWrite, ...] = (PUT, Check(LEDGER, "p", "t", Absent()))

    @pytest.mark.parametrize(
        ("fault", "outcome"),
        [
            (cancelled("None", "TransactionConflict"), Contended),
            (cancelled("ThrottlingError", "TransactionConflict"), Contended),
            (cancelled("ThrottlingError", "None"), Throttled),
            (cancelled("None", "ProvisionedThroughputExceeded"), Throttled),
            (error("TransactionInProgressException"), Contended),
            (error("ThrottlingException"), Throttled),
            (error("InternalServerError", 500), OutcomeUnknown),
            (ReadTimeoutError(endpoint_url=ENDPOINT), OutcomeUnknown),
        ],
        ids=name_of,
    )
    def test_are_repeated_under_the_same_token(
        self,
        dynamodb: DynamoDBEngine,
        wire: Wire,
        fault: Exception,
        outcome: type[StoreError],
    ) -> None:
        wire.answers = [fault, fault, {}]
        dynamodb.transact(self.STEPS)
        first = {request["ClientRequestToken"] for _, request in wire.calls}
        assert (len(wire.calls), len(first)) == (3, 1)
        wire.answers = [fault]
        with pytest.raises(outcome):
            dynamodb.transact(self.STEPS)
        assert len(wire.calls) == 3 + ATTEMPTS
        assert wire.calls[-1][1]["ClientRequestToken"] not in first

    def test_a_broken_condition_is_said_and_not_repeated(
        self, dynamodb: DynamoDBEngine, wire: Wire
    ) -> None:
        standing = marshal({"n": 7}) | marshal_key("p", "t")
        wire.answers = [cancelled("TransactionConflict", ("ConditionalCheckFailed", standing))]
        with pytest.raises(TransactionCancelled) as failed:
            dynamodb.transact(self.STEPS)
        assert list(failed.value.failed) == [False, True]
        assert list(failed.value.current) == [None, {"n": 7}]
        assert len(wire.calls) == 1

    def test_an_invalid_step_is_an_error_of_its_own(
        self, dynamodb: DynamoDBEngine, wire: Wire
    ) -> None:
        wire.answers = [cancelled("ValidationError", "None")]
        with pytest.raises(StoreError) as failed:
            dynamodb.transact(self.STEPS)
        assert not isinstance(failed.value, TransactionCancelled)


class TestBatches:
    @staticmethod
    def write_some(most: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def answer(request: dict[str, Any]) -> dict[str, Any]:
            ((table, steps),) = request["RequestItems"].items()
            return {"UnprocessedItems": {table: steps[most:]} if steps[most:] else {}}

        return answer

    @staticmethod
    def read_some(most: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def answer(request: dict[str, Any]) -> dict[str, Any]:
            ((table, wanted),) = request["RequestItems"].items()
            done, rest = wanted["Keys"][:most], wanted["Keys"][most:]
            left = {table: {**wanted, "Keys": rest}} if rest else {}
            return {"Responses": {table: done}, "UnprocessedKeys": left}

        return answer

    def test_unprocessed_items_are_sent_again(self, dynamodb: DynamoDBEngine, wire: Wire) -> None:
        wire.answers = [self.write_some(3)]
        dynamodb.write_batch([Put(POSTINGS, "p", str(n), {}) for n in range(10)])
        sizes = [len(request["RequestItems"]["postings"]) for _, request in wire.calls]
        assert sizes == [10, 7, 4, 1]
        assert len(wire.pauses) == 3

    def test_unprocessed_keys_are_asked_for_again(
        self, dynamodb: DynamoDBEngine, wire: Wire
    ) -> None:
        wire.answers = [self.read_some(30)]
        keys = [("p", str(n)) for n in range(250)]
        assert dynamodb.get_many(POSTINGS, keys).keys() == set(keys)
        sizes = [len(request["RequestItems"]["postings"]["Keys"]) for _, request in wire.calls]
        assert sorted(sizes) == sorted([100, 70, 40, 10] * 2 + [50, 20])

    def test_without_progress_they_end_as_throttled(
        self, dynamodb: DynamoDBEngine, wire: Wire
    ) -> None:
        wire.answers = [self.write_some(2), self.write_some(0)]
        with pytest.raises(Throttled):
            dynamodb.write_batch([Put(POSTINGS, "p", str(n), {}) for n in range(5)])
        assert len(wire.calls) == 1 + ATTEMPTS
        wire.answers = [self.read_some(0)]
        with pytest.raises(Throttled):
            dynamodb.get_many(POSTINGS, [("p", "s")])

    def test_no_request_is_too_large(self, dynamodb: DynamoDBEngine, wire: Wire) -> None:
        wire.answers = [self.write_some(25)]
        dynamodb.write_batch([Put(POSTINGS, "p", str(n), {}) for n in range(60)])
        sizes = [len(request["RequestItems"]["postings"]) for _, request in wire.calls]
        assert sorted(sizes) == [10, 25, 25]


class TestLostAnswers:
    """On a store that did what it was asked, with only the answer gone missing."""

    @pytest.fixture
    def losing(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[], DynamoDBEngine]:
        if not isinstance(engine, DynamoDBEngine):
            pytest.skip("there is no wire to lose an answer on")
        client = engine.connection.client
        send = client._make_api_call

        def lose_next() -> DynamoDBEngine:
            answers = iter([True])

            def lossy(operation: str, request: dict[str, Any]) -> dict[str, Any]:
                response = send(operation, request)
                if next(answers, False):
                    raise ReadTimeoutError(endpoint_url=ENDPOINT)
                return response

            monkeypatch.setattr(client, "_make_api_call", lossy)
            return engine

        return lose_next

    def test_a_put_where_nothing_stood_recognises_itself(
        self, losing: Callable[[], DynamoDBEngine], fresh: Callable[[], str]
    ) -> None:
        pk = fresh()
        put = Put(LEDGER, pk, "a", {"n": 1, "b": b"x"}, Absent())
        assert losing().write(put) is None
        with pytest.raises(ConditionFailed):
            losing().write(Put(LEDGER, pk, "a", {"n": 2}, Absent()))

    def test_an_add_is_made_once(
        self, losing: Callable[[], DynamoDBEngine], fresh: Callable[[], str]
    ) -> None:
        pk = fresh()
        with pytest.raises(OutcomeUnknown):
            losing().write(Add(LEDGER, pk, "a", {"n": 1}))
        assert losing().get(LEDGER, pk, "a") == {"n": 1}

    @pytest.mark.usefixtures("faithful")
    def test_a_transaction_is_made_once(
        self, losing: Callable[[], DynamoDBEngine], fresh: Callable[[], str]
    ) -> None:
        pk = fresh()
        losing().transact([Add(LEDGER, pk, "a", {"n": 1}), Put(LEDGER, pk, "b", {}, Absent())])
        assert losing().get(LEDGER, pk, "a") == {"n": 1}


class TestFaultyEngine:
    @pytest.fixture
    def inner(self, tmp_path: Path) -> Iterator[SqliteEngine]:
        engine = SqliteEngine(tmp_path)
        yield engine
        engine.close()

    def test_fails_before_or_after(self, inner: SqliteEngine) -> None:
        faulty = FaultyEngine(inner, at(1, Fault(Throttled)))
        faulty.write(ADD)
        with pytest.raises(Throttled):
            faulty.write(ADD)
        assert faulty.get(LEDGER, "p", "s") == {"n": 1}
        faulty.plan = at(3, Fault(Contended, after=True))
        with pytest.raises(Contended):
            faulty.write(ADD)
        assert faulty.get(LEDGER, "p", "s") == {"n": 2}
        assert faulty.operations == ["write", "write", "get", "write", "get"]

    def test_counts_only_what_is_named(self, inner: SqliteEngine) -> None:
        faulty = FaultyEngine(inner, nth(1, WRITES, Fault()))
        faulty.transact([PUT])
        faulty.get(LEDGER, "p", "s")
        faulty.query_many([Query(LEDGER, "p")])
        with pytest.raises(StoreError):
            faulty.write(PUT)
        faulty.write(PUT)

    def test_leaves_a_batch_half_done(self, inner: SqliteEngine) -> None:
        faulty = FaultyEngine(inner, at(0, Fault(Throttled, written=2)))
        with pytest.raises(Throttled):
            faulty.write_batch([Put(POSTINGS, "p", str(n), {}) for n in range(5)])
        assert [row.sk for row in faulty.query(Query(POSTINGS, "p")).rows] == ["0", "1"]

    def test_a_crash_is_not_caught_as_an_error(self, inner: SqliteEngine) -> None:
        faulty = FaultyEngine(inner, at(0, Fault(Crash)))

        def careless() -> None:
            try:
                faulty.together(lambda: faulty.get_many(LEDGER, [("p", "s")]))
            except Exception:
                pytest.fail("caught")

        with pytest.raises(Crash):
            careless()

    def test_a_seed_decides_which_calls_fail(self, inner: SqliteEngine) -> None:
        def run(seed: int) -> list[bool]:
            faulty = FaultyEngine(inner, seeded(seed, 0.5, [Fault(Throttled)]))
            failed = []
            for _ in range(30):
                try:
                    faulty.get(LEDGER, "p", "s")
                    failed.append(False)
                except Throttled:
                    failed.append(True)
            return failed

        assert run(1) == run(1) != run(2)
        assert 5 < sum(run(1)) < 25
