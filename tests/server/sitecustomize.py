"""Lets the Pythons of the client suite keep byte code, though its script forbids that for the sake of its own folder:
clients_test.py puts this file on their path, and their byte code elsewhere. Without it each of them would compile the
modules that it imports again, for seconds."""

import sys

sys.dont_write_bytecode = False
