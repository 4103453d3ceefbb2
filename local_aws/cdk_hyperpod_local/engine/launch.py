"""Starts the engine: `python launch.py --port … --state …`, with ministack's own interpreter (see `options.py`).

ministack's own `main` is not used. With TLS and as root it would also listen on port 443, and it keeps files in the
machine's temporary folder.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib.util
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def _load_package() -> None:
    """Put only this package on the path: the packages beside it have other versions than the engine needs."""
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    spec = importlib.util.spec_from_file_location(_PACKAGE.name, _PACKAGE / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules[_PACKAGE.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[_PACKAGE.name])


_load_package()

from cdk_hyperpod_local.engine import certificate
from cdk_hyperpod_local.engine.options import EngineOptions, parse


def _environment(options: EngineOptions, secret: str) -> dict[str, str]:
    """The environment of ministack and of the Lambda functions that it starts. Both read it at their start."""
    lambda_path = Path(__file__).parent / "lambda_path"
    authority = str(options.authority)
    return {
        # ministack
        "GATEWAY_PORT": str(options.port),
        "MINISTACK_HOST": "127.0.0.1",
        "BIND_HOST": "127.0.0.1",
        "AUTH": "true",
        "USE_SSL": "1",
        "MINISTACK_SSL_CERT": str(options.certificate),
        "MINISTACK_SSL_KEY": str(options.key),
        "PERSIST_STATE": "1",
        "STATE_DIR": str(options.data),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(options.data / "s3"),
        "IOT_MTLS_ENABLED": "0",  # each would open a port of its own
        "SFTP_ENABLED": "0",
        "SFN_WAIT_SCALE": str(1 / options.function_speed),
        "LAMBDA_EXECUTOR": "local",
        "LAMBDA_WARM_TTL_SECONDS": "120",
        "AWS_ACCESS_KEY_ID": "000000000000",
        "AWS_SECRET_ACCESS_KEY": secret,
        # for the Lambda functions
        "TMPDIR": str(options.temporary),
        "PYTHONPATH": str(lambda_path),
        "LOCAL_AWS_CLOCK_STARTS": str(time.time()),
        "LOCAL_AWS_CLOCK_SPEED": str(options.function_speed),
        "LOCAL_AWS_CLOCK_SKIPS": str(options.skipped),
        "NODE_PATH": str(options.node_modules),
        "NODE_EXTRA_CA_CERTS": authority,
        "AWS_CA_BUNDLE": authority,
        "REQUESTS_CA_BUNDLE": authority,
        "SSL_CERT_FILE": authority,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1,localhost",
    }


# Of the caller's environment, keep only what a program needs to run. Nothing else may reach ministack (DOCKER_HOST,
# SERVICES, …) or a Lambda function (credentials, proxies).
_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "USER", "LOG_LEVEL", "XDG_CACHE_HOME")


def main() -> None:
    # To find out where it hangs: `kill -USR1` writes every thread's stack to the log.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    options = parse(sys.argv[1:])
    for folder in (options.state, options.data, options.temporary):
        folder.mkdir(parents=True, exist_ok=True)
    certificate.ensure(options.authority, options.certificate, options.key)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    os.environ.clear()
    secret = options.secret.read_text("utf-8")
    os.environ.update(kept | _environment(options, secret))

    from cdk_hyperpod_local.engine import assembly

    asyncio.run(_serve(assembly.assemble(options, secret), options))


async def _serve(asgi: object, options: EngineOptions) -> None:
    from hypercorn.asyncio import serve  # type: ignore[import-not-found]
    from hypercorn.config import Config  # type: ignore[import-not-found]

    config = Config()
    config.bind = [f"127.0.0.1:{options.port}"]
    config.certfile, config.keyfile = str(options.certificate), str(options.key)
    config.keep_alive_timeout = 75
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end if options.owner is None else _kill)
    watching = asyncio.create_task(_end_with_owner_or_folder(options))
    await serve(asgi, config, shutdown_trigger=asyncio.Event().wait)
    watching.cancel()


def _end() -> None:
    """Save and exit at once: a client's idle connection or a waiting custom resource would delay a graceful end."""
    from cdk_hyperpod_local.engine import assembly

    assembly.save()
    _kill()


async def _end_with_owner_or_folder(options: EngineOptions) -> None:
    """End when the folder is deleted or the owner has ended, such as a test run that was killed."""
    while options.state.exists():
        if options.owner is not None and not _lives(options.owner):
            shutil.rmtree(options.state, ignore_errors=True)
        await asyncio.sleep(1)
    _kill()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another process's
        return True
    return True


def _kill() -> None:
    """End this process and the Lambda functions, which are in its process group (`daemon.py` creates the group)."""
    sys.stdout.flush()
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
