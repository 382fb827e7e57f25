"""Serves one scanner in both device APIs of a node; a device is never in both. Imports nothing.

The two APIs are the device plugin API and DRA. Start to read at `switch`.

modes_of_devices     the mode of a node, and the API in which a device is wanted
mode_source          reads the mode of the node from a file or a label, and follows changes
handover             decides which API may have a device now
api_scanners         the scanner of each API: reports the devices of this API
held_devices_file    remembers over a reboot which devices pods of the device plugin API hold
options              the options of a switch
switch               `ApiSwitch`: a device plugin, a DRA driver, and devices that move between them
switch_from_options  creates an `ApiSwitch` from options
modes                `run` and `serve`: a scanner as a plugin, as a DRA driver or as both
plugin_pages         health, readiness, metrics and state of a running plugin
driver_pages         health, readiness, metrics and state of a running DRA driver
"""
