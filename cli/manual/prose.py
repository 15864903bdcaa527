"""The text of the man pages that no declaration provides."""

DESCRIPTION = (
    "mq is RocketMQ in Python: every command of mqadmin with its name and options, commands that "
    "mqadmin lacks, and the daemons themselves. It works with brokers and name servers of this "
    "project and of the Java project.",
    "Command names may be written in any case and in kebab-case: updateTopic, update-topic. Many "
    "have a second name of noun and verb: mq topic create, mq group seek; `mq help topic` lists "
    "them. `mq help COMMAND` shows the options of a command; `mq shell` runs many commands in one "
    "process.",
    "A command finds its cluster by -n, else by the context of --context or MQ_CONTEXT, else by "
    "NAMESRV_ADDR, else by the current context, else at 127.0.0.1:9876.",
)

PRECEDENCE = (
    "Cluster: -n, else the context of --context or MQ_CONTEXT, else NAMESRV_ADDR, else the current "
    "context (mq context use), else 127.0.0.1:9876.",
    "Access key: --acl-file, else MQ_ACCESS_KEY with MQ_SECRET_KEY, else MQ_ACL_FILE, else the "
    "file of the context, else $ROCKETMQ_HOME/conf/tools.yml. TLS: --tls-config, else "
    "MQ_TLS_CONFIG, else that of the context. The key and TLS of the current context are used "
    "only if it also gives the cluster.",
    "Format: -o, else MQ_OUTPUT, else table at a terminal and plain elsewhere.",
)

GROUP = (
    "Options of every command, such as -n, --output, --columns and --watch, are described in "
    "mq(1). If a command here has the same flag, its own is used."
)

OPTIONS = (
    "These options may precede or follow the command; if given in both places, the later one is "
    "used. A command's own option overrides a shared one with the same flag; before the command a "
    "flag is always the shared one: -o is --output."
)

FORMATS = (
    ("table", "Fits the terminal, and cuts no name. The default at a terminal."),
    (
        "plain",
        "The output of the Java mqadmin for the same state, byte for byte; for commands that "
        "mqadmin lacks, columns without frames. The default in a pipe. With --columns, --sort, "
        "--no-header or --utc always columns.",
    ),
    (
        "json",
        "An object with version, command, status, data, totals and failures; docs/json-output.md "
        "has the data of each command. A continuous command prints one object per line.",
    ),
    ("yaml", "The same as json; a continuous command prints one document per result."),
    ("csv", "A line with the column names, then the rows."),
)

ARGUMENTS = (
    "The subject of a command has a flag, and may be a positional argument instead: mq topicStatus "
    "Orders is mq topicStatus -t Orders. Positional arguments are assigned, in the order of the "
    "synopsis, to subjects without a flag.",
    "For a FILE to read, - means standard input; for one to write, standard output.",
    "A TIME is an age, such as 15m, 1h30m or 2d, counted back from now; now; ISO 8601, such as "
    "2026-07-01T12:00Z, local without a zone; yyyy-MM-dd#HH:mm:ss:SSS, local; or milliseconds "
    "since 1970. A duration in seconds or milliseconds may also be written as 500ms, 2s or 15m.",
)

MESSAGE_FORMAT = (
    "In --format these signs stand for parts of a message, as in kcat. With --body bodies are "
    "written as text, json (in one line; a body that is not JSON as a JSON string), hex or base64; "
    "auto, the default, is text if the body is UTF-8, else base64."
)

COMPLETION = (
    "The completions for bash, zsh and fish include commands, options, and current topics, "
    "groups, clusters, brokers and message keys. Names of a cluster are cached for ten seconds. "
    "If a cluster does not answer, nothing is completed.",
)

STATUS = (
    "The exit statuses other than 0 and 1 are those of sysexits(3). Ctrl-C is the normal end of a "
    "command that runs until it is stopped, such as `mq tail`, and of one that is repeated with "
    "--watch: as in watch(1), the exit status is 0; with --watch it is that of the last round if "
    "that failed."
)

VARIABLES = (
    ("MQ_ACCESS_KEY", "Access key to sign requests with, together with MQ_SECRET_KEY."),
    ("MQ_ACL_FILE", "YAML file with accessKey and secretKey, unless --acl-file is given."),
    ("MQ_CACHE_DIR", "Directory of cached names; else mq in XDG_CACHE_HOME, else ~/.cache/mq."),
    ("MQ_CONFIG_DIR", "Directory of contexts; else mq in XDG_CONFIG_HOME, else ~/.config/mq."),
    ("MQ_CONTEXT", "Context to use, unless --context is given."),
    ("MQ_DEBUG", "If set, a bug in mq prints its traceback."),
    ("MQ_NATIVE", "If 0, a broker runs in Python only, even if the native path is built."),
    ("MQ_OUTPUT", "Format, unless --output is given."),
    ("MQ_SECRET_KEY", "Secret of MQ_ACCESS_KEY."),
    ("MQ_SECURITY_TOKEN", "Security token of MQ_ACCESS_KEY, if any."),
    (
        "MQ_STATE_DIR",
        "Directory for message bodies; else /tmp/rocketmq, as with mqadmin.",
    ),
    ("MQ_TUBE_MASTERS", "Masters of TubeMQ, unless --masters is given."),
    ("MQ_TUBE_TOKEN", "Token for changes of a TubeMQ cluster: its confModAuthToken."),
    ("MQ_TIMEOUT", "Seconds to wait for each reply, unless --timeout is given."),
    ("MQ_COMPLETION_TIMEOUT", "Seconds that the completion of a name may take; 0.3."),
    ("MQ_TLS_CONFIG", "TLS properties file, unless --tls-config is given."),
    ("JAVA_HOME", "The Java that mq spark submit uses; else java on the PATH."),
    ("NAMESRV_ADDR", "Addresses of name servers: host:port, several with semicolons."),
    ("NO_COLOR", "If set, output has no colors."),
    ("PYSPARK_PYTHON", "The Python of mq spark submit's jobs, unless --python is given."),
    ("ROCKETMQ_HOME", "Its conf/tools.yml may have the access key if no other source has one."),
    ("ROCKETMQ_SERIALIZE_TYPE", "Headers of requests: JSON, the default, or ROCKETMQ: binary."),
    ("SPARK_HOME", "The Spark of mq spark submit, unless --spark-home is given."),
)

DAEMON_VARIABLES = (
    ("MQ_LOG_FORMAT", "Format of log lines: text, the default, or json."),
    ("MQ_LOG_LEVEL", "DEBUG, INFO (the default), WARNING or ERROR."),
    ("NAMESRV_ADDR", "Addresses of name servers, unless the configuration has them."),
    ("ROCKETMQ_HOME", "Directory that is searched for access control files."),
)

FILES = (
    ("~/.config/mq/contexts.json", "The contexts. It holds paths of secret files, no secrets."),
    ("~/.cache/mq", "Names for completions, and the history of mq shell."),
    ("/tmp/rocketmq/msgbodys", "Message bodies that mqadmin's commands write to files."),
)

SIGNALS = (
    ("SIGTERM", "Stop cleanly: no acknowledged message is lost. SIGINT does the same."),
    ("SIGHUP", "Reload TLS and access control files."),
    ("SIGUSR1", "Write the daemon's current state to the log, without secrets."),
)

_KEYS = (
    "The file of -c is a Java properties file; --set overrides it. These are the keys, with their "
    "Java names."
)

_INI_KEYS = (
    "The file of -f has sections of name=value, as those of TubeMQ's own servers; --set overrides "
    "it. These are the names."
)

SETTINGS = {
    "namesrv": _KEYS,
    "broker": _KEYS,
    "console": "The file of -c is a Java properties file; --set overrides it.",
    "controller": _KEYS,
    "filtersrv": f"{_KEYS} The file may be the broker's: its ports are ignored.",
    "snode": _KEYS,
    "tube master": _INI_KEYS,
    "tube broker": _INI_KEYS,
    "tube standalone": f"{_INI_KEYS} They are the broker's.",
    "standalone": f"{_KEYS} They are the broker's.",
}

EXAMPLES = (
    (
        "Name a cluster once, then use it without an address:",
        "mq context add prod -n 10.0.0.1:9876",
    ),
    ("The groups with the largest lag:", "mq consumerProgress --sort -diffTotal"),
    ("Show the requests of a change without sending them:", "mq updateTopic -c C -t T --dry-run"),
    ("Watch a cluster, updated every two seconds:", "mq clusterList --watch 2"),
    (
        "Keys and bodies of a topic, one line each:",
        r"mq printMsg -t T --format '%k %b\n' --body json",
    ),
    ("One value for a script:", "mq topicList -o json | jq -r '.data[].topic'"),
)
