"""Java's proxy, and a program that uses the gRPC client through it."""

import json
from pathlib import Path

from tests.interop.jvm import HERE, SHORT_LIVED, compiled, jars, write_home
from tests.interop.peers import java_command
from tests.interop.ports import free_port
from tests.interop.process import Process


class JavaProxy(Process):
    """A proxy of `release` ("5.5.0") in cluster mode with default settings except its ports.

    It exits if no broker is registered with `namesrv`. Its files are below `tmp`.
    """

    def __init__(self, release: str, tmp: Path, namesrv: str) -> None:
        home = tmp / f"proxy-{release}"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_home(home)
        settings = {
            "grpcServerPort": self.port,
            "remotingListenPort": free_port(),
            "namesrvAddr": namesrv,
        }
        config = home / "conf" / "rmq-proxy.json"
        config.write_text(json.dumps(settings), encoding="utf-8")
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        command = java_command(jars(f"proxy-{release}"), home, "512m", main)
        super().__init__([*command, "-pc", str(config)], home, "startup successfully")


class GrpcProgram(Process):
    """`tests/interop/java/Grpc.java` with the gRPC client of `release` ("5.2.0")."""

    def __init__(self, release: str, endpoint: str, tmp: Path) -> None:
        folder = jars(f"grpc-client-{release}")
        classes = compiled(f"grpc-client-{release}", folder, HERE / "java" / "Grpc.java")
        home = tmp / "grpc"
        command = ["java", *SHORT_LIVED, "-Xmx256m", f"-Duser.home={home}"]
        path = f"{folder}/*:{classes}"
        super().__init__([*command, "-cp", path, "Grpc", endpoint], home, "READY")
