"""The command line; nothing imports it. One command a file: a function that returns data, and a thin command over it."""
