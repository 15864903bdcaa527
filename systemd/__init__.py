"""The units for systemd, with their user and folders: data that `mq systemd install` writes."""
