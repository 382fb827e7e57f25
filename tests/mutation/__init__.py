"""Changes the code in small ways and sees whether a test fails: `make mutants`."""
