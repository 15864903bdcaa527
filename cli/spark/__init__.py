"""Support code of `mq spark`: finds Spark, packs mq, runs a job."""
