"""`kafka-reassign-partitions`: replicas move to other brokers, or to other directories of theirs."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Option, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cli.cluster.admin import Admin
    from ottla.cli.cluster.reassignment import Plan
    from ottla.client.admin.replicas import Reassignment, Replica
    from ottla.client.admin.topics import Partition

_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_PERMITTED = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
_ANYWHERE = {"bootstrap-server", "bootstrap-controller", "command-config"}
_THROUGH_CONTROLLERS = {"cancel", "list"}
_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
    "and create a new partition assignment in addition to the existing one. The --additional flag can also "
    "be used to change the throttle by resubmitting the current reassignment."
)
_VERIFY_PERIODICALLY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
    "is removed."
)
_RETRY_S = 0.1


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    action = _action(given)
    lines: list[str] = []
    with cluster(given) as admin:
        try:
            match action:
                case "generate":
                    data = _generate(given, admin, lines)
                case "execute":
                    data = _execute(given, admin, lines)
                case "verify":
                    data = _verify(given, admin, lines)
                case "cancel":
                    data = _cancel(given, admin, lines)
                case _:
                    data = _list(admin, lines)
        except ToolError:
            # What was done before, and the way back, must not be lost with what failed.
            show(given, {"before": lines}, lines)
            raise
    show(given, data, lines)
    return 0


def _action(given: argparse.Namespace) -> str:
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in _ACTIONS)
        raise ToolError(f"Command must include exactly one action: {names}")
    (action,) = actions
    for name in _REQUIRED[action]:
        if getattr(given, name.replace("-", "_")) is None:
            raise ToolError(f"--{action} needs --{name}")
    allowed = {*_REQUIRED[action], *_PERMITTED[action], *_ANYWHERE, *_ACTIONS}
    for option in TOOL.options:
        if getattr(given, option.attribute) not in {None, False} and option.name not in allowed:
            raise ToolError(f'Option "{option.name}" can\'t be used with action "{action}"')
    if given.bootstrap_controller and action not in _THROUGH_CONTROLLERS:
        raise ToolError(f"--{action} needs --bootstrap-server; controllers only take --cancel and --list")
    return action


# The actions. Each says what it did in `lines`, as it goes, and returns it as data.


def _generate(given: argparse.Namespace, admin: Admin, lines: list[str]) -> Any:
    import secrets

    from ottla.cli.cluster.reassignment import plan_json, plan_text, read_brokers, read_topics
    from ottla.client.admin.placement import TooFewBrokers, propose

    wanted = read_brokers(given.broker_list)
    current = _replicas_of_topics(admin, read_topics(given.topics_to_move_json_file))
    directories = _directories(admin, current)
    live = admin.nodes()
    racks = {
        broker: None if given.disable_rack_aware else live[broker].rack for broker in wanted if broker in live
    }
    if any(rack is None for rack in racks.values()) and any(racks.values()):
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    if not racks:
        raise ToolError(f"--broker-list {given.broker_list}: none of these brokers is up")
    try:
        proposed = propose(current, racks, secrets.randbelow(len(racks)))
    except TooFewBrokers as error:
        raise ToolError(f"--broker-list {given.broker_list}: {error}") from None
    lines += ["Current partition replica assignment", plan_text(current, directories), ""]
    lines += ["Proposed partition reassignment configuration", plan_text(proposed, {})]
    return {"current": plan_json(current, directories), "proposed": plan_json(proposed, {})}


def _execute(given: argparse.Namespace, admin: Admin, lines: list[str]) -> Any:
    from ottla.cli.cluster.reassignment import check_executable, moves, plan_text, read_plan
    from ottla.client.admin.replicas import list_reassignments, reassign

    plan = read_plan(given.reassignment_json_file)
    check_executable(given.reassignment_json_file, plan)
    planned = plan.partitions
    underway = admin.call(list_reassignments)
    if underway and not given.additional:
        raise ToolError(_EXISTING)
    live = admin.nodes()
    for broker in sorted({broker for brokers in planned.values() for broker in brokers}):
        if broker not in live:
            raise ToolError(f"Unknown broker id {broker}")
    current = _replicas_of(admin, planned)
    lines += [
        "Current partition replica assignment",
        "",
        plan_text(current, _directories(admin, current)),
        "",
    ]
    lines += ["Save this to use as the --reassignment-json-file option during rollback"]
    if given.throttle is not None or given.replica_alter_log_dirs_throttle is not None:
        lines.append(_VERIFY_PERIODICALLY)
        if given.throttle is not None:
            _throttle(admin, moves(underway, current, planned), given.throttle)
            lines.append(f"The inter-broker throttle limit was set to {given.throttle} B/s")
        if given.replica_alter_log_dirs_throttle is not None:
            limit = given.replica_alter_log_dirs_throttle
            _throttle_directories(admin, {replica.broker for replica in plan.directories}, limit)
            lines.append(f"The replica-alter-dir throttle limit was set to {limit} B/s")
    refused = admin.call(
        reassign, dict(planned), may_change_factor=not given.disallow_replication_factor_change
    )
    if refused:
        faults = "\n".join(f"{partition}: {error.message}" for partition, error in sorted(refused.items()))
        raise ToolError(f"Error reassigning partition(s):\n{faults}")
    lines.append(f"Successfully started partition reassignment{_s(planned)} for {_names(planned)}")
    _move(given, admin, plan.directories, lines)
    return {"started": [str(partition) for partition in sorted(planned)]}


def _verify(given: argparse.Namespace, admin: Admin, lines: list[str]) -> Any:
    from ottla.cli.cluster.reassignment import read_plan
    from ottla.client.admin.replicas import list_reassignments, replica_directories
    from ottla.client.admin.topics import find_topics

    plan = read_plan(given.reassignment_json_file)
    underway: Mapping[Partition, Reassignment] = admin.call(list_reassignments)
    found = admin.call(find_topics, sorted({partition.topic for partition in plan.partitions}))
    states = {}
    lines.append("Status of partition reassignment:")
    for partition, target in sorted(plan.partitions.items()):
        if partition in underway:
            states[str(partition)] = "in progress"
            lines.append(f"Reassignment of partition {partition} is still in progress.")
            continue
        topic = found.get(partition.topic)
        replicas = {each.number: each.replicas for each in topic.partitions} if topic else {}
        current = replicas.get(partition.number, ())
        if tuple(current) == target:
            states[str(partition)] = "completed"
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            states[str(partition)] = "not under way"
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{','.join(map(str, current))} rather than {','.join(map(str, target))}."
            )
    places = admin.call(replica_directories, list(plan.directories)) if plan.directories else {}
    moving = False
    for replica, wanted in sorted(plan.directories.items()):
        line, is_moving = _move_state(replica, wanted, places.get(replica))
        moving |= is_moving
        lines.append(line)
    lines.append("")
    if not underway and not moving and not given.preserve_throttles:
        _clear_throttles(admin, plan, lines)
    return {"partitions": states, "underway": bool(underway), "movesUnderway": moving}


def _cancel(given: argparse.Namespace, admin: Admin, lines: list[str]) -> Any:
    from ottla.cli.cluster.reassignment import read_plan
    from ottla.client.admin.replicas import list_reassignments, reassign, replica_directories

    plan = read_plan(given.reassignment_json_file)
    underway = admin.call(list_reassignments, list(plan.partitions)) if plan.partitions else {}
    active = [partition for partition, move in underway.items() if move.adding or move.removing]
    if active:
        refused = admin.call(reassign, dict.fromkeys(active))
        if refused:
            faults = "\n".join(
                f"{partition}: {error.message}" for partition, error in sorted(refused.items())
            )
            raise ToolError(f"Error cancelling partition reassignment{_s(refused)} for:\n{faults}")
        lines.append(f"Successfully cancelled partition reassignment{_s(active)} for: {_names(active)}")
    else:
        lines.append("None of the specified partition reassignments are active.")
    places = admin.call(replica_directories, list(plan.directories)) if plan.directories else {}
    back = {
        replica: place.current
        for replica, place in places.items()
        if place.current is not None and place.future is not None
    }
    if back:
        _move(given, admin, back, lines)
    else:
        lines.append("None of the specified partition moves are active.")
    if not given.preserve_throttles:
        _clear_throttles(admin, plan, lines)
    return {"cancelled": [str(partition) for partition in active], "movedBack": [str(each) for each in back]}


def _list(admin: Admin, lines: list[str]) -> Any:
    from ottla.client.admin.replicas import list_reassignments

    underway = admin.call(list_reassignments)
    lines.append("Current partition reassignments:" if underway else "No partition reassignments found.")
    for partition, move in underway.items():
        text = f"{partition}: replicas: {','.join(map(str, move.replicas))}."
        if move.adding:
            text += f" adding: {','.join(map(str, move.adding))}."
        if move.removing:
            text += f" removing: {','.join(map(str, move.removing))}."
        lines.append(text)
    return {
        str(partition): {"replicas": move.replicas, "adding": move.adding, "removing": move.removing}
        for partition, move in underway.items()
    }


# What they have in common.


def _replicas_of_topics(admin: Admin, topics: list[str]) -> dict[Partition, tuple[int, ...]]:
    from ottla.client.admin.topics import Partition, find_topics

    found = admin.call(find_topics, topics)
    for topic in topics:
        if topic not in found:
            raise ToolError(f"Topic {topic} not found.")
    return {
        Partition(topic, state.number): state.replicas
        for topic in topics
        for state in found[topic].partitions
    }


def _replicas_of(admin: Admin, partitions: Mapping[Partition, Any]) -> dict[Partition, tuple[int, ...]]:
    current = _replicas_of_topics(admin, sorted({partition.topic for partition in partitions}))
    if missing := sorted(partition for partition in partitions if partition not in current):
        raise ToolError(f"Unable to find partition: {', '.join(map(str, missing))}")
    return {partition: current[partition] for partition in partitions}


def _directories(admin: Admin, current: Mapping[Partition, tuple[int, ...]]) -> dict[Replica, str]:
    from ottla.client.admin.replicas import Replica, replica_directories

    replicas = [Replica(broker, *partition) for partition, brokers in current.items() for broker in brokers]
    found = admin.call(replica_directories, replicas)
    return {replica: place.current for replica, place in found.items() if place.current is not None}


def _throttle(admin: Admin, moving: Mapping[Partition, Any], rate: int) -> None:
    from ottla.cli.cluster.reassignment import FOLLOWERS_RATE, LEADERS_RATE, throttled_replicas
    from ottla.client.admin.configs import BROKER, TOPIC, alter_configs

    for topic, settings in throttled_replicas(moving).items():
        admin.call(alter_configs, TOPIC, topic, settings)
    for broker in sorted({each for move in moving.values() for each in move.sources | move.destinations}):
        rates = {LEADERS_RATE: str(rate), FOLLOWERS_RATE: str(rate)}
        admin.call(alter_configs, BROKER, str(broker), rates)


def _throttle_directories(admin: Admin, brokers: Iterable[int], rate: int) -> None:
    from ottla.cli.cluster.reassignment import DIRECTORIES_RATE
    from ottla.client.admin.configs import BROKER, alter_configs

    for broker in sorted(brokers):
        admin.call(alter_configs, BROKER, str(broker), {DIRECTORIES_RATE: str(rate)})


def _clear_throttles(admin: Admin, plan: Plan, lines: list[str]) -> None:
    """Of all brokers: nobody knows any more which of them earlier moves came from."""
    from ottla.cli.cluster.reassignment import (
        DIRECTORIES_RATE,
        FOLLOWERS,
        FOLLOWERS_RATE,
        LEADERS,
        LEADERS_RATE,
    )
    from ottla.client.admin.configs import BROKER, TOPIC, alter_configs

    brokers = sorted({*admin.nodes(), *(broker for _, replicas in plan.replicas for broker in replicas)})
    lines.append(f"Clearing broker-level throttles on broker{_s(brokers)} {','.join(map(str, brokers))}")
    for broker in brokers:
        keys = [LEADERS_RATE, FOLLOWERS_RATE, DIRECTORIES_RATE]
        admin.call(alter_configs, BROKER, str(broker), {}, keys)
    topics = sorted({partition.topic for partition in plan.partitions})
    lines.append(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    for topic in topics:
        admin.call(alter_configs, TOPIC, topic, {}, [LEADERS, FOLLOWERS])


def _move(
    given: argparse.Namespace, admin: Admin, directories: Mapping[Replica, str], lines: list[str]
) -> None:
    """A replica that is still on its way to its broker cannot be given a directory there yet: asked again."""
    from ottla.client.admin.replicas import move_replicas
    from ottla.wire.errors import ErrorCode

    pending = dict(directories)
    deadline = time.monotonic() + (10_000 if given.timeout is None else given.timeout) / 1000
    while pending:
        refused = admin.call(move_replicas, pending)
        for replica, error in sorted(refused.items()):
            if error.code != ErrorCode.replica_not_available:
                raise Refused(error.code, error.message, f"Failed to alter dir for {replica}")
        for replica in sorted(pending.keys() - refused.keys()):
            lines.append(
                f"Successfully started moving log directory to {pending[replica]} for replica "
                f"{replica.topic}-{replica.number} with broker {replica.broker}"
            )
        pending = {replica: path for replica, path in pending.items() if replica in refused}
        if pending and time.monotonic() > deadline:
            raise ToolError(
                f"Timed out before log directory move{_s(pending)} could be started for: {_names(pending)}"
            )
        if pending:
            time.sleep(_RETRY_S)


def _move_state(replica: Replica, wanted: str, place: Any) -> tuple[str, bool]:
    name = f"Partition {replica.topic}-{replica.number}"
    on_broker = f"on broker {replica.broker}"
    if place is None:
        return f"{name} cannot be found in any live log directory {on_broker}.", False
    if place.current is None:
        return (
            f"{name} is not found in any live log dir {on_broker}. There is likely an offline log directory "
            "on the broker.",
            False,
        )
    if place.future is None:
        if place.current == wanted:
            return f"Reassignment of replica {replica} completed successfully.", False
        return f"{name} {on_broker} is not being moved from log dir {place.current} to {wanted}.", False
    if place.future == wanted:
        return f"Reassignment of replica {replica} is still in progress.", True
    return f"{name} {on_broker} is being moved to log dir {place.future} instead of {wanted}.", True


def _names(things: Iterable[Any]) -> str:
    return ",".join(map(str, sorted(things)))


def _s(things: Any) -> str:
    return "" if len(things) == 1 else "s"


TOOL = Tool(
    name="reassign-partitions",
    description="Move replicas of partitions to other brokers, or to other directories of theirs.",
    run=run,
    options=(
        EITHER_SERVER,
        EITHER_CONTROLLER,
        COMMAND_CONFIG,
        Option("generate", "propose where replicas could be; nothing is moved"),
        Option("execute", "begin to move what --reassignment-json-file says"),
        Option("verify", "say how far that is, and remove throttles when it is done"),
        Option("cancel", "call off what of it is under way"),
        Option("list", "list what is under way"),
        Option("reassignment-json-file", "partitions with the replicas they shall have", "FILE"),
        Option("topics-to-move-json-file", "with --generate: the topics", "FILE"),
        Option("broker-list", "with --generate: the brokers that shall have them", "ID,…"),
        Option("disable-rack-aware", "with --generate: pay no attention to racks"),
        Option("throttle", "with --execute: bytes per second between brokers", "BYTES", int),
        Option(
            "replica-alter-log-dirs-throttle",
            "with --execute: bytes per second between directories of a broker",
            "BYTES",
            int,
        ),
        Option(
            "timeout",
            "milliseconds until moves between directories have to begin; 10000 if not given",
            "MS",
            int,
        ),
        Option("additional", "with --execute: besides what is under way, or to change its throttle"),
        Option("preserve-throttles", "with --verify and --cancel: leave throttles as they are"),
        Option(
            "disallow-replication-factor-change",
            "with --execute: refuse to change how many replicas there are",
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --generate --broker-list 1,2,3 "
        "--topics-to-move-json-file topics.json",
        "--bootstrap-server localhost:9092 --execute --reassignment-json-file plan.json --throttle 50000000",
        "--bootstrap-server localhost:9092 --verify --reassignment-json-file plan.json",
    ),
)
