"""Drivers that break one rule each: the good driver with a part that is another class.

registry      `defect` and `all_defects`
registration  sockets
process       the life of the process, and what it does at the API server
slices        ResourceSlices
prepare       NodePrepareResources
prepare_errors  a slow or refusing API server, and what refusals say
holders       who holds a device
configuration  the parameters of a claim
unprepare     NodeUnprepareResources
state         reboots, crashes, damaged files
health        the health of devices
"""

from tests.check.grpc_driver.defects.registry import all_defects, rule_of

__all__ = ["all_defects", "rule_of"]
