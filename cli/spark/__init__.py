"""What `mq spark` needs besides its commands: finding Spark, packing mq, running a job."""
