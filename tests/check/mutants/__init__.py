"""The good plugin with one defect each; every mutant names the checks that it fails.

registry      `Mutation`, and the collection of all mutants
registration  Register, unusual starts, the plugin watcher
listing       lists and streams
allocate      answers to Allocate
preferred     preferred allocation and PreStart
life          kubelet restarts, leaks, SIGTERM
ends          unexpected ends of the process
grpc          HTTP/2, through a relay in front
field         defects of widely used plugins that break several rules
bare          one-file plugins that share no code with the good plugin
"""
