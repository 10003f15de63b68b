"""What the API serves for the command line: `rabbitmqadmin`, which runs alone on any machine."""
