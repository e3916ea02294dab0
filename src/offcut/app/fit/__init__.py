"""What is behind ``offcut fit``: a file becomes a posterior, tables and a report page.

``recipes`` lists the models, ``mixture``, ``langevin`` and ``curves`` know them, ``run`` drives
them, ``folder`` is the directory that results go to.
"""
