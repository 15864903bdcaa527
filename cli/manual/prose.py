"""What the man pages say that no declaration says."""

DESCRIPTION = (
    "mq is RocketMQ in Python: every command of mqadmin under its own name and with its own "
    "options, commands that mqadmin lacks, and the daemons themselves. It works alike with "
    "brokers and name servers of this project and with those in Java.",
    "Names of commands are taken in any case and in kebab-case: updateTopic, update-topic. Many "
    "have a second name of noun and verb: mq topic create, mq group seek; `mq help topic` lists "
    "them. "
    "`mq help COMMAND` shows the options of one; `mq shell` runs many in one process.",
    "A command finds its cluster by -n, else by the context that --context or MQ_CONTEXT names, "
    "else by NAMESRV_ADDR, else by the current context, else at 127.0.0.1:9876.",
)

PRECEDENCE = (
    "Which cluster: -n, else the context that --context or MQ_CONTEXT names, else NAMESRV_ADDR, "
    "else the current context (mq context use), else 127.0.0.1:9876.",
    "Which access key: --acl-file, else MQ_ACCESS_KEY with MQ_SECRET_KEY, else MQ_ACL_FILE, else "
    "the file of the context, else $ROCKETMQ_HOME/conf/tools.yml. Which TLS: --tls-config, else "
    "MQ_TLS_CONFIG, else that of the context. The current context gives its key and its TLS only "
    "where it gives the cluster, too.",
    "Which format: -o, else MQ_OUTPUT, else table on a terminal and plain elsewhere.",
)

GROUP = (
    "What every command takes, such as -n, --output, --columns and --watch, is described in "
    "mq(1). Where a command here has the same flag, its own counts."
)

OPTIONS = (
    "These stand before the command or behind it; given in both places, the one behind counts. "
    "An option of the command itself wins over a shared one with the same flag; before the command "
    "a flag is always the shared one: -o is --output."
)

FORMATS = (
    ("table", "For people: fits the terminal, and cuts no name. The default on a terminal."),
    (
        "plain",
        "What the Java mqadmin prints for the same state, byte for byte; where mqadmin has no "
        "such command, columns without frames. The default in a pipe. With --columns, --sort, "
        "--no-header or --utc always columns.",
    ),
    (
        "json",
        "An object with version, command, status, data, totals and failures; docs/json-output.md "
        "has the data of each command. A command that goes on prints one object per line.",
    ),
    ("yaml", "The same as json; a command that goes on prints one document each."),
    ("csv", "A line with the names of columns, then the rows."),
)

WORDS = (
    "What a command is about has a flag, and may be a word instead: mq topicStatus Orders is "
    "mq topicStatus -t Orders. Words go, in the order of the synopsis, to what no flag gives.",
    "A FILE to be read may be -: standard input; one to be written -: standard output.",
    "A TIME is an age, such as 15m, 1h30m or 2d, which is counted back from now; now; ISO 8601, as "
    "2026-07-01T12:00Z, local without a zone; yyyy-MM-dd#HH:mm:ss:SSS, local; or milliseconds "
    "since 1970. Where a number of seconds or milliseconds says how long, 500ms, 2s and 15m do, "
    "too.",
)

MESSAGE_FORMAT = (
    "In --format these signs stand for parts of a message, as in kcat. With --body bodies are "
    "written as text, json (in one line; a body that is not JSON as a JSON string), hex or base64; "
    "auto, the default, is text where the body is UTF-8, else base64."
)

COMPLETION = (
    "The completions for bash, zsh and fish know commands, options, and the topics, groups, "
    "clusters, brokers and message keys there are now. What they asked a name server for they "
    "keep for ten seconds. A cluster that does not answer is not waited for.",
)

STATUS = (
    "Besides 0 and 1 the statuses are those of sysexits(3). Ctrl-C is the way to end a command "
    "that shows things until it is stopped, such as `mq tail`, and one that is repeated with "
    "--watch: both end, as watch(1) does, with 0, the latter with the status of its last round "
    "if that had failed."
)

VARIABLES = (
    ("MQ_ACCESS_KEY", "Access key that requests are signed with, together with MQ_SECRET_KEY."),
    ("MQ_ACL_FILE", "YAML file with accessKey and secretKey, unless --acl-file names one."),
    ("MQ_CACHE_DIR", "Where completions keep names; else mq in XDG_CACHE_HOME, else ~/.cache/mq."),
    ("MQ_CONFIG_DIR", "Where contexts are kept; else mq in XDG_CONFIG_HOME, else ~/.config/mq."),
    ("MQ_CONTEXT", "Context to use, unless --context names one."),
    ("MQ_DEBUG", "If set, a bug in mq shows its trace."),
    ("MQ_NATIVE", "If 0, a broker does all in Python, though the native path has been built."),
    ("MQ_OUTPUT", "Format, unless --output names one."),
    ("MQ_SECRET_KEY", "Secret of MQ_ACCESS_KEY."),
    ("MQ_SECURITY_TOKEN", "Security token that belongs to MQ_ACCESS_KEY, where there is one."),
    (
        "MQ_STATE_DIR",
        "Where commands write bodies of messages; else /tmp/rocketmq, as mqadmin does.",
    ),
    ("MQ_TUBE_MASTERS", "Masters of TubeMQ, unless --masters names some."),
    ("MQ_TUBE_TOKEN", "What changes of a TubeMQ cluster need: its confModAuthToken."),
    ("MQ_TIMEOUT", "Seconds to wait for each answer, unless --timeout says otherwise."),
    ("MQ_COMPLETION_TIMEOUT", "Seconds that the completion of a name may take; 0.3."),
    ("MQ_TLS_CONFIG", "File with the properties of TLS, unless --tls-config names one."),
    ("JAVA_HOME", "The Java that mq spark submit uses; else java on the PATH."),
    ("NAMESRV_ADDR", "Addresses of name servers: host:port, several with semicolons."),
    ("NO_COLOR", "If set, nothing is coloured."),
    ("PYSPARK_PYTHON", "The Python of mq spark submit's jobs, unless --python names one."),
    ("ROCKETMQ_HOME", "Its conf/tools.yml is read for an access key if nothing else names one."),
    ("ROCKETMQ_SERIALIZE_TYPE", "Headers of requests: JSON, the default, or ROCKETMQ: binary."),
    ("SPARK_HOME", "The Spark of mq spark submit, unless --spark-home names one."),
)

DAEMON_VARIABLES = (
    ("MQ_LOG_FORMAT", "Text, the default, or json: the form of lines in the log."),
    ("MQ_LOG_LEVEL", "DEBUG, INFO (the default), WARNING or ERROR."),
    ("NAMESRV_ADDR", "Addresses of name servers, unless the configuration has some."),
    ("ROCKETMQ_HOME", "Folder that files of access control are looked for in."),
)

FILES = (
    ("~/.config/mq/contexts.json", "The contexts. It holds no secrets, only paths of such files."),
    ("~/.cache/mq", "Names for completions, and the history of mq shell."),
    ("/tmp/rocketmq/msgbodys", "Bodies of messages that commands of mqadmin write to files."),
)

SIGNALS = (
    ("SIGTERM", "Stop in order: nothing that was acknowledged is lost. SIGINT does the same."),
    ("SIGHUP", "Read files of TLS and access control again."),
    ("SIGUSR1", "Write to the log what the daemon has and does now, without secrets."),
)

_KEYS = (
    "The file given with -c is a file of Java properties; --set overrides it. These are the keys, "
    "with their Java names."
)

_INI_KEYS = (
    "The file given with -f has sections of name=value, as those of TubeMQ's own servers; --set "
    "overrides it. These are the names."
)

SETTINGS = {
    "namesrv": _KEYS,
    "broker": _KEYS,
    "console": "The file given with -c is a file of Java properties; --set overrides it.",
    "controller": _KEYS,
    "filtersrv": f"{_KEYS} The file may be the broker's: its ports are not taken from there.",
    "snode": _KEYS,
    "tube master": _INI_KEYS,
    "tube broker": _INI_KEYS,
    "tube standalone": f"{_INI_KEYS} They are those of the broker.",
    "standalone": f"{_KEYS} They are those of the broker.",
}

EXAMPLES = (
    (
        "Name a cluster once, then ask it without an address:",
        "mq context add prod -n 10.0.0.1:9876",
    ),
    ("The topics whose groups are behind most:", "mq consumerProgress --sort -diffTotal"),
    ("See what a change would send before it is made:", "mq updateTopic -c C -t T --dry-run"),
    ("Look at a cluster every two seconds:", "mq clusterList --watch 2"),
    (
        "Keys and bodies of a topic, a line each:",
        r"mq printMsg -t T --format '%k %b\n' --body json",
    ),
    ("One value for a script:", "mq topicList -o json | jq -r '.data[].topic'"),
)
