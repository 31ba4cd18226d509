"""Devices of this machine and runs on several of them."""
