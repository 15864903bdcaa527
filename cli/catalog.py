"""Every command of `mq`: its name, the module that holds it, and one line that says what it does.

This table is all that `mq --help`, the look-up of a name and its near misses need, so that only
the called command's module is imported. The group is the module in `mq.cli.commands`, unless
`MODULES` names another; the function is the command's name in snake_case (`updateTopic`:
`topic.update_topic`, `context add`: `context.context_add`). Summaries repeat the first line of the
function's docstring; a test holds them together.
"""

GROUPS: dict[str, dict[str, str]] = {
    "topic": {
        "updateTopic": "Create a topic, or change one.",
        "deleteTopic": "Delete a topic from the brokers of a cluster and from the name servers.",
        "topicList": "List every topic.",
        "topicRoute": "Show which brokers hold a topic.",
        "topicStatus": "Show the offsets of a topic's queues.",
        "topicClusterList": "List the clusters that hold a topic.",
        "topic plan": "Compare topics, groups and accounts with what a file declares.",
        "apply": "Make topics, groups and accounts what a file declares.",
        "updateTopicPerm": "Change the permission of a topic.",
        "updateOrderConf": "Set, show or delete the order configuration of a topic.",
        "updateTopicList": "Create or change many topics at once, from a file (5.x brokers).",
        "allocateMQ": "Show how the queues of a topic would be shared among consumers.",
        "updateStaticTopic": "Create a static topic, or give it more queues (5.x brokers).",
        "remappingStaticTopic": "Move the queues of a static topic to other brokers (5.x brokers).",
    },
    "broker": {
        "brokerStatus": "Show what a broker, or each one of a cluster, says of itself.",
        "getBrokerConfig": "Show the settings of a broker, or of each one of a cluster.",
        "updateBrokerConfig": "Change a setting of a running broker, or of each master of a "
        "cluster.",
        "brokerConsumeStats": "Show how far every consumer group is behind on a broker.",
        "cleanExpiredCQ": "Delete queue files whose messages are gone.",
        "cleanUnusedTopic": "Delete queue files of topics that a broker has no settings of.",
        "getColdDataFlowCtrInfo": "Show how much cold data consumer groups may read, and have read "
        "(5.x brokers).",
        "updateColdDataFlowCtrGroupConfig": "Limit how much cold data a consumer group may read "
        "(5.x brokers).",
        "removeColdDataFlowCtrGroupConfig": "Give a consumer group the usual limit of cold data "
        "again (5.x brokers).",
        "setCommitLogReadAheadMode": "Choose whether the system reads ahead in the commit log (5.x "
        "brokers).",
        "sendMsgStatus": "Send messages to a broker and show how long each one takes.",
        "deleteExpiredCommitLog": "Delete log files that are past their time, without waiting for "
        "the hour of `deleteWhen`.",
    },
    "cluster": {
        "doctor": "Check a cluster: is everything there, and as it should be?",
        "top": "Show what brokers, topics and consumer groups do now, again and again.",
        "clusterList": "List clusters with their brokers, versions and rates.",
        "clusterRT": "Send messages to every broker, again and again, and show how long they take.",
    },
    "consumer": {
        "consumerProgress": "Show how far consumer groups are behind.",
        "updateSubGroup": "Create a consumer group, or change one.",
        "updateSubGroupList": "Create or change many consumer groups at once, from a file (5.x "
        "brokers).",
        "deleteSubGroup": "Delete a consumer group, and with -c its retry and dead letter topics.",
        "getConsumerConfig": "Show the settings of a consumer group at each broker.",
        "setConsumeMode": "Choose whether a consumer group pulls a topic or pops it (5.x brokers).",
        "startMonitoring": "Watch all consumer groups: what waits, members that disagree or are "
        "stuck, offsets moved.",
        "consumerStatus": "Show what each member of a consumer group says of itself.",
        "consumer": "Show what each member of a consumer group says of itself, as consumerStatus "
        "does.",
    },
    "message": {
        "sendMessage": "Send a message.",
        "consumeMessage": "Read messages of a topic, a queue or from an offset.",
        "queryMsgById": "Find messages by offset id.",
        "queryMsgByKey": "Find messages by key.",
        "queryMsgByUniqueKey": "Find a message by the unique id its producer gave it.",
        "queryMsgByOffset": "Find the message at an offset of a queue.",
        "trace": "Tell what has become of a message, and why a group has it or not.",
        "printMsg": "Print the messages of a topic.",
        "message export": "Write the messages of a topic to a file of JSON lines.",
        "message import": "Send the messages of a file of JSON lines.",
        "message copy": "Copy messages of a topic to another topic, or to another cluster.",
        "tail": "Show the messages of a topic as they come.",
        "printMsgByQueue": "Print the messages of a queue, or count them by tag.",
        "dumpCompactionLog": "Print the messages in a log file, offline: of a compacted topic, or "
        "any commit log.",
        "queryMsgTraceById": "Show who has sent a message and who has consumed it, of clients that "
        "write traces.",
        "checkMsgSendRT": "Send messages to each queue of a topic in turn and show how long each "
        "one takes.",
        "DecodeMessageId": "Show what a unique id says: the producer's address and when it was "
        "made.",
    },
    "dlq": {
        "dlq list": "List the consumer groups that have dead letters: how many, why, from where.",
        "dlq show": "Show the dead letters of a consumer group, oldest first.",
        "dlq resend": "Send dead letters of a consumer group to the topics that they come from.",
        "dlq export": "Write the dead letters of a consumer group to a file of JSON lines.",
    },
    "offset": {
        "offset export": "Write the offsets of consumer groups to a file.",
        "offset import": "Set the offsets of consumer groups as a file has them.",
        "offset diff": "Compare the offsets in a file with those in another, or in the cluster.",
        "resetOffsetByTime": "Send a consumer group to where a topic was at a time.",
        "resetOffsetByTimeOld": "Set the offsets of a consumer group to where a topic was at "
        "a time; restart it afterwards.",
        "skipAccumulatedMessage": "Skip all messages that wait for a consumer group.",
        "cloneGroupOffset": "Give a consumer group the offsets of another in a topic.",
        "getConsumerStatus": "Show how far each consumer of a group says that it has come.",
    },
    "namesrv": {
        "wipeWritePerm": "Take a broker out of the routes for producers, at every name server.",
        "addWritePerm": "Give a broker back to producers, at every name server.",
        "getNamesrvConfig": "Show the settings of the name servers.",
        "updateNamesrvConfig": "Change a setting of the running name servers.",
        "updateKvConfig": "Set a key-value setting, at every name server.",
        "deleteKvConfig": "Delete a key-value setting, at every name server.",
    },
    "connection": {
        "consumerConnection": "Show which consumers of a group are connected, and what they "
        "subscribe to.",
        "producerConnection": "Show which producers of a group are connected to a broker of "
        "a topic.",
    },
    "producer": {
        "producer": "Show every producer that is connected to a broker.",
    },
    "queue": {
        "queryCq": "Show the entries of a consume queue: what a broker knows of messages "
        "without reading them.",
        "checkRocksdbCqWriteProgress": "Let brokers compare their consume queues in RocksDB "
        "with those in files (5.x brokers).",
    },
    "stats": {
        "statsAll": "Show how many messages go in and out of topics, by consumer group.",
    },
    "acl": {
        "updateAclConfig": "Create an account, or change it (brokers of 4.9, and ours).",
        "deleteAclConfig": "Delete an account (brokers of 4.9, and ours).",
        "updateGlobalWhiteAddr": "Set the addresses from which everything is allowed "
        "(brokers of 4.9, and ours).",
        "clusterAclConfigVersion": "Show the versions of ACL files (brokers of 4.9, and ours).",
        "getAclConfig": "Show the accounts of brokers (4.9.7, and ours), without their "
        "secret keys.",
    },
    "bench": {
        "bench produce": "Send messages as fast as it goes, or at a rate, and measure.",
        "bench consume": "Read a topic from its beginning as fast as it goes, and measure.",
        "bench end-to-end": "Send at a rate, read along, and measure the whole way.",
    },
    "spark": {
        "spark list": "List the jobs that mq brings for Spark.",
        "spark explain": "Tell what a job does, takes and gives.",
        "spark submit": "Run a job on Spark, here or on a cluster.",
    },
    "store": {
        "store inspect": "Show what a store on the disk has, without a broker.",
        "store verify": "Read a whole store and tell what is wrong with it.",
        "store repair": "Make a damaged store one that a broker starts on.",
        "store dump": "Print the messages of a store in the order of its log, without a broker.",
    },
    "ha": {
        "haStatus": "Show how replication does, at a master or a replica (5.x brokers).",
        "getSyncStateSet": "Show which replicas of a set are in sync, as a controller knows it "
        "(release 5).",
        "getBrokerEpoch": "Show under which masters parts of the log were written (5.x, with a "
        "controller).",
        "resetMasterFlushOffset": "Let a replica believe that its master has flushed up to an "
        "offset (5.x brokers).",
    },
    "controller": {
        "getControllerMetaData": "Show the controllers of a group and which of them leads.",
        "getControllerConfig": "Show the settings of controllers.",
        "updateControllerConfig": "Change a setting of controllers.",
        "electMaster": "Let controllers make a broker the master of its set.",
        "cleanBrokerMetadata": "Let controllers forget brokers of a set.",
        "addBroker": "Start a broker in a broker container (release 5).",
        "removeBroker": "Stop a broker in a broker container (release 5).",
    },
    "export": {
        "exportMetadata": "Write the topics and consumer groups of a broker or cluster to a file.",
        "exportConfigs": "Write what sets the brokers of a cluster apart, and how many there are, "
        "to configs.json.",
        "exportMetrics": "Write rates, counts, disk use and client releases of a cluster's masters "
        "to metrics.json.",
        "exportMetadataInRocksDB": "Print the topics or consumer groups that a broker keeps in "
        "RocksDB, from its directory.",
        "rocksDBConfigToJson": "Turn the settings that brokers keep in RocksDB into JSON.",
        "exportPopRecord": "Let brokers write what was popped and not acknowledged where older "
        "releases look for it.",
    },
    "auth": {
        "createUser": "Create a user (5.x brokers).",
        "updateUser": "Change a user (5.x brokers); what is not given stays.",
        "deleteUser": "Delete a user (5.x brokers).",
        "getUser": "Show a user (5.x brokers), without the password.",
        "listUser": "List the users (5.x brokers), without their passwords.",
        "copyUser": "Copy users from one broker to another (5.x brokers).",
        "createAcl": "Create policies of a user (5.x brokers).",
        "updateAcl": "Change policies of a user (5.x brokers): those on the resources that "
        "are named.",
        "deleteAcl": "Delete the policies of a user (5.x brokers), or those on one resource.",
        "getAcl": "Show the policies of a user (5.x brokers).",
        "listAcl": "List the policies (5.x brokers).",
        "copyAcl": "Copy policies from one broker to another (5.x brokers).",
    },
    "context": {
        "context add": "Name a cluster, so that commands need no address.",
        "context use": "Choose the context that commands use by default.",
        "context list": "List the contexts.",
        "context show": "Show a context; by default the current one.",
        "context export": "Print a context as variables for a shell; by default the current one.",
        "context remove": "Forget a context.",
    },
    "systemd": {
        "systemd install": "Put the units for systemd, and the user and folders they need, where "
        "systemd looks.",
    },
    "tool": {
        "shell": "Run many commands in one process.",
        "shutdown": "Stop the brokers or name servers of this machine that run under one's own "
        "user.",
        "manual": "Write the man pages, the completions and the description of the JSON.",
    },
    "daemon": {
        "namesrv": "Run a name server.",
        "broker": "Run a broker.",
        "standalone": "Run a name server and a broker in one process.",
    },
}

TITLES = {
    "topic": "Topics",
    "broker": "Brokers",
    "cluster": "Clusters",
    "consumer": "Consumer groups",
    "message": "Messages",
    "dlq": "Dead letters",
    "offset": "Offsets",
    "namesrv": "Name servers",
    "connection": "Connections",
    "producer": "Producers",
    "queue": "Queues",
    "stats": "Statistics",
    "acl": "Accounts of 4.9",
    "bench": "Measurements",
    "spark": "Jobs on Spark",
    "store": "Stores on the disk",
    "ha": "Replication",
    "controller": "Controllers and containers",
    "export": "Exports",
    "auth": "Users and policies of 5.x",
    "context": "Contexts",
    "systemd": "Units for systemd",
    "tool": "This command",
    "daemon": "Daemons",
}


# The commands that do not lie in the module of their group.
MODULES: dict[str, str] = {
    "topic plan": "declaring",
    "apply": "declaring",
    "doctor": "doctor",
    "top": "top",
    "trace": "tracing",
    "dumpCompactionLog": "message_reading",
    "getColdDataFlowCtrInfo": "cold_data",
    "updateColdDataFlowCtrGroupConfig": "cold_data",
    "removeColdDataFlowCtrGroupConfig": "cold_data",
    "setCommitLogReadAheadMode": "cold_data",
    "remappingStaticTopic": "static_topic",
    "updateStaticTopic": "static_topic",
    "exportMetadataInRocksDB": "rocksdb",
    "rocksDBConfigToJson": "rocksdb",
    "copyAcl": "policies",
    "listAcl": "policies",
    "getAcl": "policies",
    "deleteAcl": "policies",
    "updateAcl": "policies",
    "createAcl": "policies",
    "copyUser": "users",
    "listUser": "users",
    "getUser": "users",
    "deleteUser": "users",
    "updateUser": "users",
    "createUser": "users",
    "manual": "tools",
    "shutdown": "stopping",
    "shell": "tools",
    "exportMetrics": "export_metrics",
    "startMonitoring": "monitoring",
    "updateSubGroupList": "groups",
    "deleteSubGroup": "groups",
    "getConsumerConfig": "groups",
    "setConsumeMode": "groups",
    "consumerStatus": "consumer_status",
    "consumer": "consumer_status",
    "producer": "connection",
    "allocateMQ": "queue",
    "updateTopicList": "topic_settings",
    "updateOrderConf": "topic_settings",
    "updateTopicPerm": "topic_settings",
    "sendMessage": "sending",
    "sendMsgStatus": "sending",
    "checkMsgSendRT": "sending",
    "clusterRT": "sending",
    "printMsgByQueue": "message_reading",
    "queryMsgTraceById": "message_trace",
    "consumeMessage": "message_reading",
    "printMsg": "message_reading",
    "cleanExpiredCQ": "cleaning",
    "cleanUnusedTopic": "cleaning",
    "deleteExpiredCommitLog": "cleaning",
    "message export": "message_files",
    "message import": "message_copies",
    "message copy": "message_copies",
    "tail": "tail",
    "offset export": "offset_files",
    "offset import": "offset_files",
    "offset diff": "offset_files",
    "store verify": "store_repair",
    "store repair": "store_repair",
}


def fold(name: str) -> str:
    """The form in which names are compared: `update-topic`, `updatetopic` and `updateTopic`.

    Java compares without case too (MQAdminStartup.findSubCommand).
    """
    return name.replace("-", "").replace("_", "").lower()


# Second names that mqadmin has for commands (SubCommand.commandAlias).
ALIASES = {
    "getAccessConfigSubCommand": "getAclConfig",
    "deleteAccessConfig": "deleteAclConfig",
}

_SECOND_NAMES = {fold(alias): fold(name) for alias, name in ALIASES.items()}
_BY_NAME = {fold(name): (group, name) for group, names in GROUPS.items() for name in names}
_PREFIXES = {key.split(" ")[0] for key in _BY_NAME if " " in key}


def find(words: list[str]) -> tuple[str, str, int] | None:
    """Return (group, name, words used) of the command that `words` begin with, or None."""
    if not words:
        return None
    first = fold(words[0])
    first = _SECOND_NAMES.get(first, first)
    if first in _PREFIXES and len(words) > 1:
        found = _BY_NAME.get(f"{first} {fold(words[1])}")
        return None if found is None else (*found, 2)
    found = _BY_NAME.get(first)
    return None if found is None else (*found, 1)


def subcommands(word: str) -> list[str]:
    """The commands of two words that begin with `word`: `context` has `context add` and others."""
    prefix = fold(word) + " "
    return [name for key, (_, name) in _BY_NAME.items() if key.startswith(prefix)]


def near_misses(words: list[str]) -> list[str]:
    """Names that the words may have been meant to be, the nearest first."""
    from difflib import get_close_matches

    first = fold(words[0])
    found: list[str] = []
    if len(words) > 1 and not words[1].startswith("-"):
        second = fold(words[1])
        # `mq topic list` and `mq list topics` for topicList, `mq ofset export` for offset export.
        for joined in (first + second, second.removesuffix("s") + first, f"{first} {second}"):
            found += get_close_matches(joined, _BY_NAME, 2, 0.8)
    found = found or get_close_matches(first, _BY_NAME, 3, 0.65)
    return [_BY_NAME[key][1] for key in dict.fromkeys(found)][:3]


def near_groups(word: str) -> list[str]:
    """Groups that a word may have been meant to be, where no command is as near."""
    from difflib import get_close_matches

    found = get_close_matches(fold(word), [*GROUPS, *_BY_NAME], 1, 0.75)
    return [name for name in found if name in GROUPS and name not in _BY_NAME]


def kebab(name: str) -> str:
    """The name in kebab-case: `update-topic`; `clean-expired-cq` of `cleanExpiredCQ`."""
    words = ""
    for index, letter in enumerate(name):
        before, after = name[index - 1 : index], name[index + 1 : index + 2]
        # Of several capitals, one that a small letter follows begins the next word.
        if letter.isupper() and (before.islower() or (before.isupper() and after.islower())):
            words += "-"
        words += letter.lower()
    return words


def module_name(group: str, name: str) -> str:
    """The module in `mq.cli.commands` that holds a command."""
    return MODULES.get(name, group)


def function_name(name: str) -> str:
    """The name of the function that is the command: `update_topic`, `context_add`."""
    return kebab(name).replace("-", "_").replace(" ", "_").lstrip("_")
