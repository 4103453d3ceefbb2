"""The engine: ministack in its own virtual environment, with the services and resource types that it lacks.

`launch.py` starts it, and `assembly.py` connects the folders below. All of this runs on the engine's own Python.
May import: engine.kubernetes, engine.resources, engine.seam, engine.services, hyperpod.
"""
