"""One scanner in both device APIs of a node, and never one device in both. Imports nothing.

modes_of_devices  which API an administrator wants a device to be in
custody           which API may have a device now
halves            the scanner as each API sees it
mode_source       the mode of the node, and what tells that it changed
options           what may be chosen
held_note         which devices DRA waits for, for the time after a reboot
switch            a device plugin and a DRA driver, and devices that go from one to the other
made_by_options   a switch as its options say
"""
