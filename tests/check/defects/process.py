"""What a process should not do."""

import os
import sys
from pathlib import Path

from kubedevices.dra.sockets import _RegistrationService
from kubedevices.values.allocation import PluginInfo
from tests.check.defects import Answers, Claims, answering, defect, patch


@defect("process.stderr-secrets")
def _prints_its_kubeconfig() -> None:
    print(Path(os.environ["KUBECONFIG"]).read_text(), file=sys.stderr)


@defect("process.dies")
def _ends_at_a_bad_claim() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        if any(isinstance(each, str) for each in answers.values()):
            os._exit(2)
        return answers

    answering(change)


@defect("process.exit-code")
def _fails_with_success() -> None:
    if not Path(os.environ["KUBECONFIG"]).exists():
        sys.exit(0)


@defect("process.open-files")
def _keeps_a_file_for_each_kubelet() -> None:
    get_info = _RegistrationService.get_info

    async def leaking(self: _RegistrationService) -> PluginInfo:
        os.open("/dev/null", os.O_RDONLY)
        return await get_info(self)

    patch(_RegistrationService, get_info=leaking)
