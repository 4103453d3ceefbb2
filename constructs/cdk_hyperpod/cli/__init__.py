"""The command-line tool, a file for each command; none needs CDK."""
