"""The relay's functions, and whatever calls them: a route, a stream or a clock for each."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from farthing.connector.requests import _CALLBACK_SECONDS
from farthing.nostr.messages import MAX_SUBSCRIPTION_ID, Verb
from farthing.nostr.sync import neg_message
from farthing.relay.information import relay_information
from farthing.settings import Settings
from farthing.store.table import Table
from farthing.surface import (
    ANSWERED,
    DEFAULT_FUNCTION,
    MESSAGES,
    QUEUES,
    ROUTES,
    SCHEDULES,
    STREAMS,
    Queue,
)
from infra.deployment import Deployment
from infra.permissions import (
    CALLING_THEMSELVES,
    DERIVED_KEYS,
    KEY,
    POSTING,
    SENDING,
    TABLES,
    WATCHING,
)
from tests.infra.conftest import ROOT, Stacks

PREFIX = "farthing-"


def functions(stacks: Stacks) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name: logical id and properties."""
    return {
        each["Properties"]["FunctionName"].removeprefix(PREFIX): (id, each["Properties"])
        for id, each in stacks.of_type("AWS::Lambda::Function").items()
        if "FunctionName" in each["Properties"]
    }


def schedules(stacks: Stacks) -> list[dict[str, Any]]:
    rules = stacks.properties("AWS::Events::Rule")
    return [each for each in rules if "ScheduleExpression" in each]


def function_called(stacks: Stacks, value: Any) -> str:
    """The function that a property refers to, however it does."""
    text = json.dumps(value)
    (name,) = [name for name, (id, _) in functions(stacks).items() if f'"{id}"' in text]
    return name


def test_every_handler_is_deployed(production: Stacks) -> None:
    assert set(functions(production)) == {
        path.parent.name for path in ROOT.glob("functions/*/handler.py")
    }


@pytest.mark.parametrize("name", sorted(TABLES))
class TestEachFunction:
    def test_it_runs_on_arm_with_the_layer(self, production: Stacks, name: str) -> None:
        _, properties = functions(production)[name]
        assert properties["Runtime"] == "python3.13"
        assert properties["Architectures"] == ["arm64"]
        assert properties["Handler"] == "handler.handler"
        assert len(properties["Layers"]) == 1

    def test_its_log_can_be_searched(self, production: Stacks, name: str) -> None:
        """Each record with its level, time and request as JSON, which Lambda makes of our logger's;
        metrics are JSON anyway, and pass as they are."""
        _, properties = functions(production)[name]
        assert properties["LoggingConfig"]["LogFormat"] == "JSON"

    def test_no_secret_stands_in_its_environment(self, production: Stacks, name: str) -> None:
        variables = functions(production)[name][1]["Environment"]["Variables"]
        assert ("FARTHING_SECRET_KEY_ARN" in variables) == (name in KEY)
        # A raised version replaces the containers that know the old key, and no others.
        assert ("FARTHING_KEY_VERSION" in variables) == (name in KEY | DERIVED_KEYS)
        assert not {"FARTHING_SECRET_KEY", "FARTHING_SETTLEMENT_TOKEN"} & set(variables)
        assert ("FARTHING_DERIVED_KEYS_PARAMETER" in variables) == (name in DERIVED_KEYS)
        reads = any(action == "ssm:GetParameter" for _, action in policy_of(production, name))
        assert reads == (name in DERIVED_KEYS)

    def test_its_role_permits_what_the_table_says(self, production: Stacks, name: str) -> None:
        granted = policy_of(production, name)
        wanted = {
            (table.value, f"dynamodb:{action}")
            for table, actions in TABLES[name].items()
            for action in actions
        }
        assert {each for each in granted if each[1] in ALL_ACTIONS} == wanted
        posts = any(action == "execute-api:ManageConnections" for _, action in granted)
        reads_key = any(action == "secretsmanager:GetSecretValue" for _, action in granted)
        calls = [where for where, action in granted if action == "lambda:InvokeFunction"]
        assert posts == (name in POSTING)
        assert bool(calls) == (name in CALLING_THEMSELVES)
        assert all(f"function:farthing-{name}" in where for where in calls), "and nobody else"
        assert reads_key == (name in KEY)
        watches = any(action == "cloudwatch:GetMetricData" for _, action in granted)
        variables = functions(production)[name][1]["Environment"]["Variables"]
        assert watches == (name in WATCHING)
        assert ("FARTHING_SOCKET_API_ID" in variables) == (name in WATCHING)
        assert ("FARTHING_WEB_API_ID" in variables) == (name in WATCHING)

    def test_its_role_permits_no_kind_of_action_at_once(
        self, production: Stacks, name: str
    ) -> None:
        assert not [action for _, action in policy_of(production, name) if "*" in action]

    def test_a_route_stream_queue_or_schedule_calls_it(self, production: Stacks, name: str) -> None:
        callers = [
            *production.properties("AWS::ApiGatewayV2::Integration"),
            *(each["FunctionName"]
              for each in production.properties("AWS::Lambda::EventSourceMapping")),
            *schedules(production),
            *(each["ServiceToken"] for each in production.properties("Custom::Identity")),
        ]  # fmt: skip
        assert name in {function_called(production, caller) for caller in callers}


ALL_ACTIONS = {
    f"dynamodb:{action}"
    for action in ("GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "DeleteItem",
                   "UpdateItem", "BatchWriteItem", "ConditionCheckItem", "PartiQLSelect")
}  # fmt: skip


def policy_of(stacks: Stacks, name: str) -> set[tuple[str, str]]:
    """(table, or the statement's resource, and action) of all that a function's role permits."""
    role = functions(stacks)[name][1]["Role"]["Fn::GetAtt"][0]
    granted = set()
    for policy in stacks.properties("AWS::IAM::Policy"):
        if {"Ref": role} not in policy["Roles"]:
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            actions, resources = _list(statement["Action"]), _list(statement["Resource"])
            granted |= {(_table(each), action) for each in resources for action in actions}
    return granted


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _table(resource: Any) -> str:
    text = json.dumps(resource)
    for table in Table:
        if f':table/farthing-{table.value}"' in text:
            return table.value
    return text


class TestRoutes:
    def routes(self, stacks: Stacks) -> dict[str, dict[str, Any]]:
        return {each["RouteKey"]: each for each in stacks.properties("AWS::ApiGatewayV2::Route")}

    def served_by(self, stacks: Stacks, route_key: str) -> str:
        return self.function_of(stacks, self.routes(stacks)[route_key])

    def function_of(self, stacks: Stacks, route: dict[str, Any]) -> str:
        target = route["Target"]["Fn::Join"][1][1]["Ref"]
        integration = stacks.of_type("AWS::ApiGatewayV2::Integration")[target]
        return function_called(stacks, integration["Properties"]["IntegrationUri"])

    def test_each_verb_has_one_and_so_has_everything_else(self, production: Stacks) -> None:
        wanted = {verb.value for verb in Verb} | {"$connect", "$disconnect", "$default"}
        assert wanted <= set(self.routes(production))
        assert self.served_by(production, "NEG-MSG") == "negentropy"
        assert self.served_by(production, "$connect") == "connect"

    def test_the_verb_is_what_selects(self, production: Stacks) -> None:
        expressions = {
            each["RouteSelectionExpression"]
            for each in production.properties("AWS::ApiGatewayV2::Api")
            if each["ProtocolType"] == "WEBSOCKET"
        }
        assert expressions == {"$request.body.[0]"}

    def test_only_a_verb_that_always_answers_has_a_response(self, production: Stacks) -> None:
        """Of a body that is missing, the response of a route makes an empty frame."""
        answered = {
            each["RouteId"]["Ref"]
            for each in production.properties("AWS::ApiGatewayV2::RouteResponse")
        }
        keys = {
            each["Properties"]["RouteKey"]
            for id, each in production.of_type("AWS::ApiGatewayV2::Route").items()
            if id in answered
        }
        assert keys == ANSWERED == {"EVENT", "COUNT", "AUTH"}

    def test_they_are_those_of_the_surface_and_no_others(self, production: Stacks) -> None:
        """The local server and the README are made from the same tables: tests/test_surface.py."""
        wanted = {key: route.function for route in ROUTES for key in route.keys}
        wanted |= {message.key: message.function for message in MESSAGES}
        routes = production.properties("AWS::ApiGatewayV2::Route")
        keys = [each["RouteKey"] for each in routes]
        assert sorted(keys) == sorted([*wanted, "$default"])  # one more, of the HTTP API
        del wanted["$default"]
        assert {key: self.served_by(production, key) for key in wanted} == wanted

    def test_requests_that_match_no_route_go_to_one_function(self, production: Stacks) -> None:
        targets = {
            self.function_of(production, each)
            for each in production.properties("AWS::ApiGatewayV2::Route")
            if each["RouteKey"] == "$default"
        }
        assert targets == {DEFAULT_FUNCTION, "default"}

    def test_every_route_may_call_its_function(self, production: Stacks) -> None:
        permitted = {
            function_called(production, each["FunctionName"])
            for each in production.properties("AWS::Lambda::Permission")
            if each["Principal"] == "apigateway.amazonaws.com"
        } - {"origin"}
        routes = production.properties("AWS::ApiGatewayV2::Route")
        assert permitted == {self.function_of(production, each) for each in routes}

    def test_the_doors_are_throttled(self, production: Stacks) -> None:
        for stage in production.properties("AWS::ApiGatewayV2::Stage"):
            assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 500
            assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == 1000

    def test_no_metric_of_each_route_is_paid_for_unasked(self, production: Stacks) -> None:
        for stage in production.properties("AWS::ApiGatewayV2::Stage"):
            assert stage["DefaultRouteSettings"].get("DetailedMetricsEnabled") is not True


class TestStreams:
    def sources(self, stacks: Stacks) -> dict[str, dict[str, Any]]:
        return {
            function_called(stacks, each["FunctionName"]): each
            for each in stacks.properties("AWS::Lambda::EventSourceMapping")
            if "StartingPosition" in each
        }

    def test_each_consumer_reads_its_stream_with_its_patience(self, production: Stacks) -> None:
        sources = self.sources(production)
        assert set(sources) == {stream.function for stream in STREAMS}
        for stream in STREAMS:
            source = sources[stream.function]
            assert stream.table.value.capitalize() in json.dumps(source["EventSourceArn"])
            assert source["MaximumRecordAgeInSeconds"] == 60 * stream.patience_minutes
            assert source["ParallelizationFactor"] == stream.parallel
            position = "TRIM_HORIZON" if stream.from_beginning else "LATEST"
            assert source["StartingPosition"] == position

    def test_each_has_its_queue(self, production: Stacks) -> None:
        queues = {each["QueueName"] for each in production.properties("AWS::SQS::Queue")}
        assert {f"{PREFIX}{stream.failures}" for stream in STREAMS} <= queues

    @pytest.mark.parametrize("name", ["fanout", "sequencer", "push"])
    def test_a_bad_record_neither_stops_the_stream_nor_is_lost(
        self, production: Stacks, name: str
    ) -> None:
        source = self.sources(production)[name]
        assert source["BisectBatchOnFunctionError"] is True
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert 0 < source["MaximumRecordAgeInSeconds"] <= 3600
        assert source["MaximumRetryAttempts"] >= 0
        queue = source["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert queue in production.of_type("AWS::SQS::Queue")
        assert (json.dumps({"Fn::GetAtt": [queue, "Arn"]}), "sqs:SendMessage") in policy_of(
            production, name
        )

    def test_no_event_is_numbered_twice_or_missed_when_the_stack_is_made(
        self, production: Stacks
    ) -> None:
        assert self.sources(production)["sequencer"]["StartingPosition"] == "TRIM_HORIZON"

    def test_only_records_that_handlers_take(self, production: Stacks) -> None:
        (wanted,) = self.sources(production)["push"]["FilterCriteria"]["Filters"]
        assert json.loads(wanted["Pattern"]) == {
            "eventName": ["INSERT", "MODIFY"],
            "dynamodb": {"Keys": {"pk": {"S": [{"prefix": "log#"}, {"prefix": "xlog#"}]}}},
        }

    def test_queues_are_encrypted_and_take_no_plain_http(self, production: Stacks) -> None:
        queues = production.of_type("AWS::SQS::Queue")
        assert all(each["Properties"]["SqsManagedSseEnabled"] for each in queues.values())
        policies = json.dumps(production.properties("AWS::SQS::QueuePolicy"))
        assert policies.count("aws:SecureTransport") == len(queues)
        assert len(queues) == len(STREAMS) + 2 * len(QUEUES)


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue.name)
class TestQueues:
    def resource(self, stacks: Stacks, name: str) -> tuple[str, dict[str, Any]]:
        (found,) = [
            (id, each["Properties"])
            for id, each in stacks.of_type("AWS::SQS::Queue").items()
            if each["Properties"]["QueueName"] == f"{PREFIX}{name}"
        ]
        return found

    def test_its_function_takes_one_message_at_a_time(
        self, production: Stacks, queue: Queue
    ) -> None:
        id, _ = self.resource(production, queue.name)
        (source,) = [
            each
            for each in production.properties("AWS::Lambda::EventSourceMapping")
            if each["EventSourceArn"] == {"Fn::GetAtt": [id, "Arn"]}
        ]
        assert function_called(production, source["FunctionName"]) == queue.function
        assert source["BatchSize"] == 1
        assert source["ScalingConfig"] == {"MaximumConcurrency": queue.parallel}

    def test_what_keeps_failing_is_kept(self, production: Stacks, queue: Queue) -> None:
        _, properties = self.resource(production, queue.name)
        failures, kept = self.resource(production, queue.failures)
        redrive = properties["RedrivePolicy"]
        assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [failures, "Arn"]}
        assert redrive["maxReceiveCount"] == queue.attempts
        assert kept["MessageRetentionPeriod"] == 14 * 24 * 3600

    def test_a_message_is_not_taken_twice_while_its_call_lasts(
        self, production: Stacks, queue: Queue
    ) -> None:
        _, properties = self.resource(production, queue.name)
        seconds = functions(production)[queue.function][1]["Timeout"]
        assert properties["VisibilityTimeout"] >= 6 * seconds

    def test_exactly_the_senders_have_a_queues_url_and_permission(
        self, production: Stacks, queue: Queue
    ) -> None:
        id, _ = self.resource(production, queue.name)
        may = (json.dumps({"Fn::GetAtt": [id, "Arn"]}), "sqs:SendMessage")
        variable = f"FARTHING_{queue.name.upper()}_QUEUE_URL"
        for name in TABLES:
            sends = name in SENDING[queue.name]
            variables = functions(production)[name][1]["Environment"]["Variables"]
            assert (variable in variables) == sends, name
            assert (may in policy_of(production, name)) == sends, name


def test_a_consumer_that_goes_on_by_its_own_queue_is_not_stopped_as_a_loop(
    production: Stacks,
) -> None:
    going_on = {queue.function for queue in QUEUES if queue.function in SENDING[queue.name]}
    assert "deliveries" in going_on
    allowed = {
        name
        for name, (_, properties) in functions(production).items()
        if properties.get("RecursiveLoop") == "Allow"
    }
    assert allowed == going_on


def test_the_surface_and_the_rights_know_the_same_queues() -> None:
    assert set(SENDING) == {queue.name for queue in QUEUES}


class TestFrames:
    """API Gateway closes a connection, with 1009, on a frame of more than 32 KB."""

    def settings(self, stacks: Stacks) -> Settings:
        variables = functions(stacks)["req"][1]["Environment"]["Variables"]
        plain = {name: value for name, value in variables.items() if isinstance(value, str)}
        return Settings.from_env(plain)

    def test_what_is_advertised_and_enforced_fits(self, production: Stacks) -> None:
        settings = self.settings(production)
        limitation = relay_information(replace(settings, secret_key="1" * 64))["limitation"]
        assert limitation["max_message_length"] == settings.max_message_length == 32_768
        assert limitation["max_content_length"] <= 32_768

    def test_so_does_a_message_of_a_sync(self, production: Stacks) -> None:
        settings = self.settings(production)
        largest = neg_message("\x01" * MAX_SUBSCRIPTION_ID, bytes(settings.sync_frame))
        assert len(largest.encode()) <= 32_768

    @pytest.mark.parametrize(
        "given", [{"max_message_length": "32769"}, {"sync_frame": "16385"}, {"sync_frame": "0"}]
    )
    def test_settings_above_api_gateways_frames_are_refused(self, given: dict[str, str]) -> None:
        with pytest.raises(ValueError, match="at most"):
            Deployment(settings=given)


class TestKey:
    """Who has the private key is the agent: whoever only names it has the public one."""

    @pytest.mark.parametrize("name", ["info", "event", "default"])
    def test_a_function_that_strangers_call_has_no_secret_key(
        self, production: Stacks, name: str
    ) -> None:
        variables = functions(production)[name][1]["Environment"]["Variables"]
        assert "FARTHING_SECRET_KEY_ARN" not in variables
        assert not [each for each in policy_of(production, name) if "secretsmanager" in each[1]]

    @pytest.mark.parametrize("name", sorted(set(TABLES) - KEY))
    def test_everyone_else_is_told_the_public_one(self, production: Stacks, name: str) -> None:
        variables = functions(production)[name][1]["Environment"]["Variables"]
        (agent,) = production.of_type("Custom::Identity")
        assert variables["FARTHING_PUBLIC_KEY"] == {"Fn::GetAtt": [agent, "PublicKey"]}


def test_an_update_asks_for_what_an_older_deployment_was_not_told(production: Stacks) -> None:
    """CloudFormation keeps the attributes of a custom resource whose properties stay the same."""
    (identity,) = production.of_type("Custom::Identity")
    (properties,) = production.properties("Custom::Identity")
    for template in production.templates.values():
        for found in attributes_of(template, identity):
            assert found in properties["Attributes"], found


def attributes_of(value: Any, resource: str) -> Iterator[str]:
    """The attributes of a resource that a template uses."""
    if isinstance(value, dict):
        if value.get("Fn::GetAtt", [None])[0] == resource:
            yield value["Fn::GetAtt"][1]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from attributes_of(each, resource)


def test_the_log_of_sockets_names_the_viewer(production: Stacks) -> None:
    """Behind CloudFront the source of a request is one of its own addresses."""
    for stage in production.properties("AWS::ApiGatewayV2::Stage"):
        logged = json.loads(stage["AccessLogSettings"]["Format"])
        assert logged["viewer"] == "$context.authorizer.viewer"
        assert logged["identity.sourceIp"] == "$context.identity.sourceIp"
    (account,) = production.of_type("AWS::ApiGateway::Account").values()
    assert account["DeletionPolicy"] == "Retain", "another deployment may stand on it"


class TestSchedulesAndMoney:
    def test_every_schedule_of_the_surface_has_a_rule(self, production: Stacks) -> None:
        rules = {
            function_called(production, each["Targets"]): each["ScheduleExpression"]
            for each in schedules(production)
        }
        wanted = {
            schedule.function: f"rate({schedule.minutes} minute{'s' * (schedule.minutes > 1)})"
            for schedule in SCHEDULES
        }
        assert rules == wanted

    def test_a_deployment_is_announced_at_once(self, production: Stacks) -> None:
        (trigger,) = production.properties("Custom::Trigger")
        version = trigger["HandlerArn"]["Ref"]
        made = production.of_type("AWS::Lambda::Version")[version]
        assert trigger["InvocationType"] == "Event"  # a round that is under way is no failure
        assert function_called(production, made["Properties"]["FunctionName"]) == "upkeep"

    def test_a_function_that_cannot_start_does_not_hold_up_a_deployment(
        self, production: Stacks
    ) -> None:
        """CloudFormation waits an hour for the answer of one that cannot give any."""
        (identity,) = production.properties("Custom::Identity")
        assert int(identity["ServiceTimeout"]) <= 300

    def test_concurrency_is_bounded_where_money_moves(
        self, production: Stacks, small: Stacks
    ) -> None:
        bounds = {
            name: properties["ReservedConcurrentExecutions"]
            for name, (_, properties) in functions(production).items()
            if "ReservedConcurrentExecutions" in properties
        }
        assert bounds == {"ilp": 50, "upkeep": 1, "sweeper": 1, "feeds": 1, "outbox": 1}
        none = small.properties("AWS::Lambda::Function", "relay")
        assert not any("ReservedConcurrentExecutions" in each for each in none)

    def test_a_packet_is_given_up_before_its_function_is(self, production: Stacks) -> None:
        """Whoever waits for the next hop is there when it answers, and can call back after."""
        _, properties = functions(production)["ilp"]
        waits = int(properties["Environment"]["Variables"]["FARTHING_FORWARD_MAX_MS"])
        assert waits + 1000 * _CALLBACK_SECONDS < 1000 * properties["Timeout"]

    def test_a_price_of_the_context_is_a_setting_of_the_functions(self, named: Stacks) -> None:
        variables = functions(named)["ilp"][1]["Environment"]["Variables"]
        plain = {name: value for name, value in variables.items() if isinstance(value, str)}
        assert Settings.from_env(plain).price_per_byte == 25
