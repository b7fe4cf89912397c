"""A plugin for pytest: whoever imports pydotcompute's pools gets Cistern's."""

import cistern

cistern.compat.install("pydotcompute")
