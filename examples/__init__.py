"""Example applications of ledgermq's client, each in a folder with a README of its own.

May import: `client`.
"""
