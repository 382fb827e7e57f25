"""The good plugin, each time with one thing wrong; every mutant names the checks it fails.

registry      what a mutation is, and the collection of all
registration  registering, starting beside others, the plugin watcher
listing       lists and streams
allocate      answers to Allocate
preferred     preferred allocation and PreStart
life          kubelet restarts, leaks, SIGTERM
ends          ends of the process that nobody asked for
grpc          HTTP/2, by a relay in front
field         what widely used plugins were seen doing
bare          on grpcio alone, with nothing of the good plugin
"""
