"""Our name server in its own process, for Java brokers."""

import sys
from pathlib import Path

from tests.interop.ports import free_port
from tests.interop.process import Process

NAME_SERVER = """
import sys
from pathlib import Path
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.service import run
sys.exit(run(lambda: NameServer(NamesrvSettings.load(Path(sys.argv[1])))))
"""


class OurNameServer(Process):
    """A name server of ours in its own process."""

    def __init__(self, tmp: Path) -> None:
        home = tmp / "our-namesrv"
        home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        conf = home / "namesrv.conf"
        conf.write_text(f"listenPort={self.port}\nkvConfigPath={home}/kvConfig.json\n")
        super().__init__([sys.executable, "-c", NAME_SERVER, str(conf)], home, "boot success")
