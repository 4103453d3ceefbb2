"""The engine: ministack, started in its own virtual environment with the services and resource types it lacks.

`launch.py` starts it and `assembly.py` puts the rooms below together. Everything here runs on the engine's own Python.
May import: engine.kubernetes, engine.resources, engine.seam, engine.services, hyperpod.
"""
