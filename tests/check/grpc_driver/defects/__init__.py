"""Drivers that break one rule each: the good driver with a part that is another class.

registry      `defect` and `all_defects`
registration  sockets and the process
slices        ResourceSlices
prepare       NodePrepareResources
unprepare     NodeUnprepareResources
state         reboots, crashes, damaged files
health        the health of devices
"""

from tests.check.grpc_driver.defects.registry import all_defects

__all__ = ["all_defects"]
