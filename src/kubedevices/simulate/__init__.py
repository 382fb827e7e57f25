"""The ready plugin `kubedevices simulate`: devices that do not exist, with scripted changes.

simulator        the scanner of the simulated devices; start to read here
config           the YAML file
settings         the same as variables and options
simulation_file  finds the file, or a preset in `presets/`
devices          the devices of one resource
files            files that stand for device files
step_keys        changes over time
answers          errors and delays of calls
"""
