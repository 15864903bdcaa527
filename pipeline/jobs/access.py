"""Cluster access of a job: the cluster, credentials and encryption."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mq.client.transport.blocking import BlockingSession


@dataclass(frozen=True)
class ClusterAccess:
    """Name servers, and the locations of secrets.

    `acl_file` is a path at the driver; executors get the key with their tasks. `tls` are properties
    as in tls.properties (`tls.client.trustCertPath` …), whose files every executor reads; None
    means no TLS.
    """

    name_server: str
    acl_file: str | None = None
    tls: Mapping[str, str] | None = field(default=None, repr=False)

    def options(self, **more: str) -> dict[str, str]:
        """Return options of `format("rocketmq")`, for reads and writes, with `more` added."""
        options = {"nameServer": self.name_server}
        if self.acl_file is not None:
            options["aclFile"] = self.acl_file
        if self.tls is not None:
            options |= {"useTLS": "true", **self.tls}
        return {**options, **more}

    def read(self, spark: "SparkSession", schema: str = "", **options: str) -> "DataFrame":
        """Read messages of topics; with a schema only these columns, which costs less."""
        reader = spark.read.format("rocketmq").options(**self.options(**options))
        return (reader.schema(schema) if schema else reader).load()

    def session(self, timeout: float = 10.0) -> "BlockingSession":
        """Open a session for administrative calls at the driver. Use it in a `with` block.

        Raises OptionError or ClientError for files that cannot be used.
        """
        from mq.pipeline.declared import ClusterOptions, read_declared  # avoids the import of ssl

        return read_declared(ClusterOptions, self.options()).open_session(timeout)
