"""Whole clusters on a simulated clock, disk and network: one seed decides the order of everything.

docs/testing.md says what is simulated and what is not.
"""

import gc


def install() -> None:
    """Put the simulated machine in the place of the real one; before all else of mq is imported."""
    from tests.simulation import seams

    seams.install()
    from tests.simulation import http, identity

    http.install()
    identity.install()
    from tests.simulation import scenario

    assert scenario  # with all of mq that a scenario needs
    gc.collect()
    gc.freeze()  # what is there now stays, and is not looked through after each seed
