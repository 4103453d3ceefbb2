"""The engine: ministack, started in its own virtual environment with the services and resource types it lacks."""
