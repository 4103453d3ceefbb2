"""The foundation's guard: refuses a change of what is for life before any stack has changed anything.

It stands inside the provider's package for its client and its errors: packages beside each other in a Lambda cannot
import one another by relative names, and the library knows them by other absolute ones.

May import: common.
"""
