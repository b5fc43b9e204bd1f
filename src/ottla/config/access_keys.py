"""Broker keys of access: who may do what."""

from __future__ import annotations

from ottla.config.key import ConfigKey, ConfigType

ACCESS_KEYS = (
    ConfigKey(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        "Class that decides who may do what. Ottla has one, which takes the name of Apache Kafka's: "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer. Empty: everybody may do everything.",
        choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        importance="low",
    ),
    ConfigKey(
        "super.users",
        ConfigType.STRING,
        "",
        "Principals that may do everything whatever the rules are, as User:alice;User:bob. Brokers and "
        "controllers ask each other: their principals belong here, or need a rule that allows ClusterAction.",
        importance="high",
    ),
    ConfigKey(
        "early.start.listeners",
        ConfigType.STRING,
        None,
        "Listeners of a controller that are served before it knows the access rules, to super.users alone; "
        "without this key, all of controller.listener.names. The rules are in the metadata, which "
        "controllers have to agree on first: one whose listener is not named here takes no part in elections "
        "until others have elected a leader. Listeners of brokers always wait.",
        importance="high",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        "Whether a resource about which there is no rule at all is open to everybody, rather than to super "
        "users alone.",
    ),
    ConfigKey(
        "quota.window.num",
        ConfigType.INT,
        11,
        "Windows over which the rates of clients are measured for their quotas.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "quota.window.size.seconds",
        ConfigType.INT,
        1,
        "Length of each of these windows.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "controller.quota.window.num",
        ConfigType.INT,
        11,
        "Windows whose worth of changes of the cluster a client may make at once (controller_mutation_rate).",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "Length of each of these windows.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "ottla.audit.log",
        ConfigType.STRING,
        "",
        "File for the audit log: a line of JSON for each thing that the authorizer refused. Empty: none.",
    ),
    ConfigKey(
        "ottla.audit.allowed",
        ConfigType.STRING,
        "none",
        "What is written to the audit log of what was allowed: nothing, or what changes or deletes things of "
        "the cluster.",
        choices=("none", "administrative"),
    ),
    ConfigKey(
        "ottla.audit.max.bytes",
        ConfigType.LONG,
        100 * 1024 * 1024,
        "Size at which the audit log is set aside as FILE.1 and begun anew.",
        minimum=1024,
    ),
    ConfigKey(
        "ottla.audit.files",
        ConfigType.INT,
        10,
        "Files of the audit log that are kept, with the newest.",
        minimum=1,
    ),
)
