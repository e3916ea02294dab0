"""What is behind ``offcut fit``: a file becomes a posterior, tables and a report page.

``reading`` has the file, ``mixture``, ``langevin`` and ``curves`` the worlds, ``run`` drives them,
``folder`` is the directory that results go to.
"""
