"""Topics of TubeMQ as tables and streams of Spark: the data source `tubemq`."""
