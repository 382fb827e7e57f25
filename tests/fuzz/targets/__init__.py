"""The targets of the search, by name.

http2_peers     our connections with a peer of another library, and a model of what was said
messages        the protobuf codec beside protobuf itself
files           readers of files: CDI, configurations, kubeconfig, checkpoint, ledger, state, record
api_answers     answers of the API server
"""

from tests.fuzz.target import by_name
from tests.fuzz.targets import api_answers, files, http2_peers, messages

TARGETS = by_name([*http2_peers.TARGETS, *messages.TARGETS, *files.TARGETS, *api_answers.TARGETS])
